"""The rules for URLs and addresses, without a network."""

from ipaddress import ip_address, ip_network

import pytest

from tidings.core.net.addresses import (
    MAX_URL_LENGTH,
    UrlError,
    is_allowed_address,
    is_public_address,
    join_url,
    parse_networks,
    parse_url,
    show_url,
)

RULES = {
    "only http": "only http:// and https:// URLs are fetched",
    "host is missing": "the host is missing",
    "user name": "a user name or password in the URL is not allowed",
    "backslash": "a backslash is not allowed in a URL",
    "control characters": "white space and control characters are not allowed in a URL",
    "Unicode": "not valid Unicode",
    "disguise": "the host is a number in disguise, not an address of four decimal numbers",
    "valid name": "the host is not a valid name",
    "international name": "the host is not a valid international name",
    "IPv6": "the host is not a valid IPv6 address",
    "port": "the port must be a number from 1 to 65535",
    "longer": "longer than 2,048 characters",
}

REFUSED_URLS = [
    ("", "only http"),
    ("example.org", "only http"),
    ("http:example.org", "only http"),
    ("//example.org/", "only http"),
    ("file:///etc/passwd", "only http"),
    ("gopher://example.org/", "only http"),
    ("ftp://example.org/", "only http"),
    ("httpſ://example.org/", "only http"),
    ("http://", "host is missing"),
    ("http:///path", "host is missing"),
    ("http://:80/", "host is missing"),
    ("http://user@example.org/", "user name"),
    ("http://user:word@example.org/", "user name"),
    ("http://@example.org/", "user name"),
    ("http://169.254.169.254:8888\\@example.org/", "backslash"),
    ("http://example.org\\.evil.test/", "backslash"),
    ("http://example.org/\r\nHost: evil.test", "control characters"),
    ("http://example.org/\tx", "control characters"),
    ("http://example.org/\x00", "control characters"),
    ("http://example.org/\x85", "control characters"),
    (" http://example.org/", "control characters"),
    ("http://example.org/a b", "control characters"),
    ("http://example.org/a\u3000b", "control characters"),
    ("http://example.org/\udc80", "Unicode"),
    ("http://example.org/\ud800", "Unicode"),
    ("http://127.1/", "disguise"),
    ("http://2130706433/", "disguise"),
    ("http://0x7f000001/", "disguise"),
    ("http://0x7F.1/", "disguise"),
    ("http://0x/", "disguise"),
    ("http://0177.0.0.1/", "disguise"),
    ("http://127.0.0.01/", "disguise"),
    ("http://127.0.0.1./", "disguise"),
    ("http://1.2.3.4.5/", "disguise"),
    ("http://256.0.0.1/", "disguise"),
    ("http://example.1/", "disguise"),
    ("http://１２７.0.0.1/", "disguise"),
    ("http://127。0。0。1/", "disguise"),
    ("http://example..org/", "valid name"),
    ("http://.example.org/", "valid name"),
    ("http://exa%6dple.org/", "valid name"),
    ("http://exam!ple.org/", "valid name"),
    (f"http://{'a' * 64}.org/", "valid name"),
    (f"http://{'a.' * 127}org/", "valid name"),
    ("http://[::1/", "valid name"),
    ("http://[::1]x/", "valid name"),
    ("http://a℀b.org/", "international name"),
    ("http://[127.0.0.1]/", "IPv6"),
    ("http://[fe80::1%25eth0]/", "IPv6"),
    ("http://[fe80::1%eth0]/", "IPv6"),
    ("http://[v1.a]/", "IPv6"),
    ("http://example.org:/", "port"),
    ("http://example.org:0/", "port"),
    ("http://example.org:080/", "port"),
    ("http://example.org:65536/", "port"),
    ("http://example.org:+80/", "port"),
    ("http://example.org:８０/", "port"),
    ("http://example.org:80:80/", "port"),
    ("http://example.org/" + "a" * MAX_URL_LENGTH, "longer"),
]

REFUSED_ADDRESSES = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::7f00:1 ::ffff:7f00:1 ::ffff:100.64.0.1 ::ffff:10.0.0.1 ::ffff:0.0.0.0 ::ffff:168.63.129.16
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::1 100::1 2001::1 2001:0:808:808::1 2001:2::1 2001:10::1
2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:808:808:: 3fff::1 3fff:fff::1 5f00::1 fc00::1
fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 2606:4700::1111%eth0 ::ffff:8.8.8.8%eth0
"""

PUBLIC_ADDRESSES = """
1.1.1.1 8.8.8.8 93.184.215.14 100.63.255.255 100.128.0.1 168.63.129.15 168.63.129.17 172.15.255.255 172.32.0.1
191.255.255.255 198.17.255.255 223.255.255.255 ::ffff:8.8.8.8 2001:200::1 2001:4860:4860::8888 2606:4700::1111
2a00:1450:4001::200e 3fff:1000::1
"""

QUOTING = "/?u=https%3A%2F%2Fe.com%2F%3Fid%3D1&b=%zz+'|"


@pytest.mark.parametrize(("text", "rule"), REFUSED_URLS)
def test_doubtful_url_is_refused_with_the_rule_it_breaks(text: str, rule: str) -> None:
    """A5: only a URL that every reader reads alike is fetched."""
    with pytest.raises(UrlError) as caught:
        parse_url(text)
    assert str(caught.value) == RULES[rule]


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("http://example.org", ("http", "example.org", 80), "/"),
        ("HTTPS://EXAMPLE.org:8443/A", ("https", "example.org", 8443), "/A"),
        ("https://example.org?", ("https", "example.org", 443), "/"),
        ("https://example.org?a=b#c?d", ("https", "example.org", 443), "/?a=b"),
        ("https://example.org./a/../b//c", ("https", "example.org.", 443), "/a/../b//c"),
        ("https://my_host-1.example/@me:x", ("https", "my_host-1.example", 443), "/@me:x"),
        ("https://bücher.example/ü?q=页", ("https", "xn--bcher-kva.example", 443), "/%C3%BC?q=%E9%A1%B5"),
        (f"https://h{QUOTING}", ("https", "h", 443), QUOTING),
        ("https://example.org/?u=http://e.com/", ("https", "example.org", 443), "/?u=http://e.com/"),
        ("http://example.org:65535/", ("http", "example.org", 65_535), "/"),
        (f"http://{'a.' * 125}org./", ("http", f"{'a.' * 125}org.", 80), "/"),
        ("http://8.8.8.8:81/", ("http", "8.8.8.8", 81), "/"),
        ("http://[2606:4700:0:0::1111]/", ("http", "2606:4700::1111", 80), "/"),
    ],
)
def test_url_is_split_into_what_is_connected_to_and_what_is_sent(
    text: str, origin: tuple[str, str, int], target: str
) -> None:
    """A15: the query stays as it was given, byte for byte."""
    url = parse_url(text)
    assert (url.origin, url.target) == (origin, target)
    assert parse_url(url.text) == url


def test_literal_host_carries_its_address_and_a_name_does_not() -> None:
    assert parse_url("http://8.8.8.8/").address == ip_address("8.8.8.8")
    assert parse_url("http://[::1]/").address == ip_address("::1")
    assert parse_url("http://example.org/").address is None


def test_url_limit_can_be_raised_for_a_url_that_quotes_another() -> None:
    """A15: a submission URL holds a whole page URL, encoded."""
    text = "http://example.org/?url=" + "%25" * 1_000
    assert parse_url(text, max_length=8_000).text == text
    assert join_url(parse_url("http://example.org/"), text, max_length=8_000).text == text
    longest = "http://example.org/".ljust(MAX_URL_LENGTH, "a")
    assert parse_url(longest).text == longest


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("c.xml", "https://example.org/a/c.xml"),
        ("../c", "https://example.org/c"),
        ("/c?d=%2F", "https://example.org/c?d=%2F"),
        ("?d", "https://example.org/a/b?d"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example:81/x", "http://other.example:81/x"),
    ],
)
def test_relative_reference_is_resolved(reference: str, expected: str) -> None:
    assert join_url(parse_url("https://example.org/a/b?q"), reference).text == expected


@pytest.mark.parametrize(
    "reference", ["file:///etc/passwd", "//u@h/", "/a\tb", "ht\ntp://h/", "//127.1/", "//[::1", "/\\h", "javascript:1"]
)
def test_reference_meets_the_same_rules_as_a_url(reference: str) -> None:
    with pytest.raises(UrlError):
        join_url(parse_url("https://example.org/a"), reference)


def test_reference_that_cannot_be_joined_is_no_valid_url() -> None:
    with pytest.raises(UrlError, match=r"^not a valid URL$"):
        join_url(parse_url("https://example.org/a"), "//[::1")


@pytest.mark.parametrize("text", REFUSED_ADDRESSES.split())
def test_address_that_is_not_global_unicast_is_not_public(text: str) -> None:
    assert not is_public_address(ip_address(text))
    assert not is_allowed_address(ip_address(text), allow_networks=parse_networks("192.168.7.0/24"))


@pytest.mark.parametrize("text", PUBLIC_ADDRESSES.split())
def test_global_unicast_address_is_public(text: str) -> None:
    assert is_public_address(ip_address(text))
    assert is_allowed_address(ip_address(text))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.0.0.1", True),
        ("192.168.0.1", False),
        ("64:ff9b::a01:203", False),
        ("2002:a01:203::", False),
        ("fd00::1%eth0", False),
        ("::ffff:10.1.2.3%eth0", False),
    ],
)
def test_named_network_is_allowed_and_nothing_beside_it(text: str, allowed: bool) -> None:
    assert is_allowed_address(ip_address(text), allow_networks=parse_networks("10.0.0.0/8,fd00::/8")) is allowed


def test_networks_are_read_from_a_comma_list() -> None:
    assert parse_networks("127.0.0.0/8, fd00::/8,10.1.2.3,") == (
        ip_network("127.0.0.0/8"),
        ip_network("fd00::/8"),
        ip_network("10.1.2.3/32"),
    )
    assert parse_networks("  ") == ()


@pytest.mark.parametrize("part", ["10.0.0.1/8", "10.0.0.0/33", "localhost", "10", "127.1/8", "*"])
def test_wrong_network_is_named_in_the_error(part: str) -> None:
    with pytest.raises(ValueError, match="is not a network") as caught:
        parse_networks(f"127.0.0.0/8,{part}")
    assert repr(part) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://example.org:8443/a?key=CANARY#CANARY", "https://example.org:8443/a"),
        ("http://me:CANARY@example.org/", "http://…"),
        ("http://me:CAN?ARY@example.org/", "http://…"),
        ("http://me:CANARY://x@example.org/", "http://…"),
        ("CANARY@example.org", "…"),
        ("me:CANARY@example.org://x", "…"),
        ("CANARY" + "a" * 5_000 + "@example.org", "…"),
        ("ftp://example.org/a?CANARY", "ftp://example.org/a"),
        ("http://h:x/a\r\n\x1b[31m\udc80?CANARY", "http://h:x/a\\r\\n\\x1b[31m\\udc80"),
        ("http://h/" + "a" * 191, "http://h/" + "a" * 191),
        ("http://h/" + "a" * 5_000, "http://h/" + "a" * 191 + "…"),
    ],
)
def test_shown_url_has_no_query_no_password_and_no_control_characters(text: str, shown: str) -> None:
    """A4: keys travel in queries, and a log line cannot be forged."""
    assert show_url(text) == shown


def test_parsed_url_does_not_print_its_query() -> None:
    """A4: neither str nor repr of a URL shows a key."""
    url = parse_url("https://example.org/a?apikey=CANARY")
    assert str(url) == "https://example.org/a"
    assert "CANARY" not in repr(url)
    assert "CANARY" in url.text
