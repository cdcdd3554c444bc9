"""A site's rules: defaults, the forms of an engine, and every bad value refused with the name of its field."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import (
    Engine,
    Site,
    SubmitMethod,
    check_host,
    check_key,
    check_schedule,
    make_site,
    parse_engine,
    parse_engines,
)

KEY = "c0ffee00-Feed-4bad-8Bad-F00dDecafBad"
SITEMAP = "https://example.com/sitemap.xml"


def make(**changes: Any) -> Site:
    return make_site(**{"sitemap_urls": [SITEMAP], "key": KEY, **changes})


def test_what_is_left_out_gets_its_default() -> None:
    """A2, A15: the id is the host, the key file lies at the root under the key's name."""
    site = make()
    assert (site.id, site.host, site.number) == ("example.com", "example.com", 0)
    assert site.key_location == f"https://example.com/{KEY}.txt"
    assert site.key_folder == "/"
    assert site.engines == (Engine("https://api.indexnow.org/indexnow", "api.indexnow.org"),)
    assert (site.submit_method, site.schedule) == (SubmitMethod.AUTO, "0 0 * * *")
    assert (site.announce_removed, site.enabled, site.backup_sitemap_urls) == (False, True, ())
    assert site.workflow_name == "announce:example.com"


@pytest.mark.parametrize(
    ("sitemap", "host", "expected_host", "location"),
    [
        ("https://Example.COM/s.xml", None, "example.com", "https://example.com"),
        ("https://example.com:443/s.xml", None, "example.com", "https://example.com"),
        ("https://example.com:8443/s.xml", None, "example.com:8443", "https://example.com:8443"),
        ("https://münchen.example/s.xml", None, "xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example"),
        ("https://cdn.example/s.xml", "WWW.Example.com", "www.example.com", "https://www.example.com"),
        ("http://127.0.0.1:8800/s.xml", None, "127.0.0.1:8800", "http://127.0.0.1:8800"),
        ("https://[2001:db8::1]:8443/s.xml", None, "[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_the_host_decides_where_the_key_file_is(
    sitemap: str, host: str | None, expected_host: str, location: str
) -> None:
    """A15: keyLocation defaults to https://{host}/{key}.txt; a site that is on plain http has it there."""
    site = make(sitemap_urls=[sitemap], host=host)
    assert (site.host, site.key_location) == (expected_host, f"{location}/{KEY}.txt")


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("https://example.com/key.txt", "/"),
        ("https://example.com/catalog/key.txt", "/catalog/"),
        ("https://example.com/catalog/de/key.txt?version=/2/", "/catalog/de/"),
        ("https://example.com", "/"),
        ("http://example.com/catalog/", "/catalog/"),
    ],
)
def test_a_key_vouches_for_the_folder_of_its_file(location: str, folder: str) -> None:
    """A7: what lies outside keyLocation's path is not announced."""
    assert make(key_location=location).key_folder == folder


@pytest.mark.parametrize(
    ("name", "endpoint", "host"),
    [
        ("api.indexnow.org", "https://api.indexnow.org/indexnow", "api.indexnow.org"),
        (" Yandex.COM ", "https://yandex.com/indexnow", "yandex.com"),
        ("www.bing.com/indexnow", "https://www.bing.com/indexnow", "www.bing.com"),
        ("www.bing.com/IndexNow", "https://www.bing.com/IndexNow", "www.bing.com"),
        ("localhost:8801", "https://localhost:8801/indexnow", "localhost:8801"),
        ("https://search.seznam.cz", "https://search.seznam.cz/indexnow", "search.seznam.cz"),
        ("http://127.0.0.1:8801/indexnow", "http://127.0.0.1:8801/indexnow", "127.0.0.1:8801"),
        ("http://127.0.0.1:8801", "http://127.0.0.1:8801/indexnow", "127.0.0.1:8801"),
        ("HTTPS://yandex.com:443/indexnow", "https://yandex.com/indexnow", "yandex.com"),
    ],
)
def test_an_engine_is_a_host_a_host_with_a_path_or_a_url(name: str, endpoint: str, host: str) -> None:
    """A1, A18: the three forms, with the endpoint that each of them means."""
    engine = parse_engine(name)
    assert (engine.endpoint, engine.host, str(engine)) == (endpoint, host, host)


def test_an_engine_that_is_named_twice_is_asked_once() -> None:
    """A18: in whatever form, and in the order in which they were named."""
    names = ["yandex.com", "www.bing.com/indexnow", "https://YANDEX.com/indexnow", "https://www.bing.com"]
    assert [engine.host for engine in parse_engines(names)] == ["yandex.com", "www.bing.com"]


@pytest.mark.parametrize(
    "names",
    [
        [],
        [""],
        ["yandex.com", " "],
        ["ftp://yandex.com/indexnow"],
        ["yandex.com/indexnow?key=1"],
        ["yandex.com?key=1"],
        ["user:pass@yandex.com"],
        ["yandex.com:99999"],
        ["yandex com"],
        ["http://"],
        ["[yandex.com"],
        ["0x7f000001"],
        ["https://yandex.com\\@evil.example"],
    ],
)
def test_a_bad_engine_is_refused_by_name(names: Sequence[str]) -> None:
    """A1: the field is named, so that a start is refused with the variable and the rule."""
    with pytest.raises(SiteError, match=r"^searchEngines: .") as caught:
        parse_engines(names)
    assert caught.value.field == "searchEngines"


@pytest.mark.parametrize("key", ["a" * 8, "Z9-" * 42 + "ab", "--------", KEY])
def test_a_key_of_8_to_128_letters_digits_and_hyphens_is_taken(key: str) -> None:
    """A4: and it shows no more than its first 4 characters."""
    secret = check_key(key)
    assert (secret.reveal(), secret.hint) == (key, f"{key[:4]}****")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "short-7",
        "x" * 129,
        "under_score-key",
        "white space key",
        "trailing-newline\n",
        "umlaut-schlüssel",
        "arabic-٠١٢٣٤٥٦٧",
        "path/../traversal",
        "percent%2Fencoded",
        "null-\0-character",
    ],
)
def test_a_bad_key_is_refused_and_not_repeated(key: str) -> None:
    """A4: neither the message nor what raised it holds the key."""
    with pytest.raises(SiteError, match=r"^indexnowKey: .*8 to 128") as caught:
        make(key=key)
    assert caught.value.field == "indexnowKey"
    assert not key or key not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_site_cannot_print_its_key() -> None:
    """A4: also not as part of the key file's address, which is named after it."""
    site = make()
    assert KEY not in f"{site} {site!r} {site.key}"
    assert "example.com" in repr(site)


@pytest.mark.parametrize(
    "location",
    [
        f"https://evil.example/{KEY}.txt",
        f"https://www.example.com/{KEY}.txt",
        f"https://example.com:8443/{KEY}.txt",
        f"http://example.com:443/{KEY}.txt",
        f"ftp://example.com/{KEY}.txt",
        f"https://user:{KEY}@example.com/{KEY}.txt",
        f"/{KEY}.txt",
        f"{KEY}.txt",
        f"https://example.com/{KEY} .txt",
    ],
)
def test_a_key_file_elsewhere_is_refused_and_the_key_not_repeated(location: str) -> None:
    """A4, A7: an engine would answer 422; the message does not hold the address, because the key is in it."""
    with pytest.raises(SiteError, match=r"^keyLocation: .") as caught:
        make(key_location=location)
    assert caught.value.field == "keyLocation"
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/sitemap.xml",
        "ftp://example.com/",
        "https://",
        "https://user@example.com/",
        "https://a b/",
        "javascript:alert(1)",
    ],
)
@pytest.mark.parametrize(
    ("field", "argument"), [("sitemapUrl", "sitemap_urls"), ("backupSitemapUrls", "backup_sitemap_urls")]
)
def test_a_bad_sitemap_is_refused_by_name(url: str, field: str, argument: str) -> None:
    """A1, A2: also where a good one stands before it; the rule says what would do."""
    with pytest.raises(SiteError, match=r"it must be a URL such as https://") as caught:
        make(**{argument: [SITEMAP, url]})
    assert caught.value.field == field
    assert str(caught.value) == f"{field}: {caught.value.rule}"


def test_a_site_without_a_sitemap_is_refused() -> None:
    """A2: there is nothing to announce."""
    with pytest.raises(SiteError, match=r"^sitemapUrl: at least one"):
        make(sitemap_urls=[])


@pytest.mark.parametrize(
    "host",
    [
        "https://example.com",
        "example.com/",
        "example.com/path",
        "user@example.com",
        "exa mple.com",
        "example..com",
        "example.com:0",
        "example.com:port",
        "example.com\\.evil.example",
        "127.1",
        "-" * 64 + ".example",
        "example.com?query",
        "example.com#fragment",
    ],
)
def test_a_bad_host_is_refused_by_name(host: str) -> None:
    """A1: a host alone, with its port at most; nothing of it is dropped in silence."""
    with pytest.raises(SiteError, match=r"^host: .") as caught:
        check_host(host)
    assert caught.value.field == "host"


@pytest.mark.parametrize("schedule", ["0 0 * * *", "*/5 * * * *", "15,45 6-22/2 * JAN-JUN MON-FRI", "0 0 L * *"])
def test_a_cron_expression_is_taken_as_it_is(schedule: str) -> None:
    """A1, A38: five fields."""
    assert check_schedule(schedule) == make(schedule=schedule).schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    ["", "daily", "@reboot", "0 0 * *", "60 * * * *", "0 24 * * *", "0 0 31 2 *", "0 0 * * 8", "* * * * * *"],
)
def test_a_bad_schedule_is_refused_by_name(schedule: str) -> None:
    """A1, A38: a day that never comes, too; six fields would be seconds, which nothing here runs by."""
    with pytest.raises(SiteError, match=r"^schedule: it must be a cron expression") as caught:
        make(schedule=schedule)
    assert caught.value.field == "schedule"
