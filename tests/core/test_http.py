"""The guarded client against servers of the test's own on loopback; names come from a resolver of the test's own."""

import asyncio
import functools
import gc
import gzip
import os
import socket
import ssl
import struct
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidings.core.net.addresses import parse_networks
from tidings.core.net.client import (
    AnswerTooLargeError,
    FetchError,
    FetchTimeoutError,
    GuardedClient,
    NetworkError,
    RefusedError,
)
from tidings.core.stop import StopRequestedError

LOOPBACK = parse_networks("127.0.0.0/8")
AGENT = "tidings-test/1"
ENOUGH = timedelta(seconds=5)
SHORT = timedelta(milliseconds=200)
CANARY = "c4n4ry-5ecret"

Scene = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server that plays one scene to each connection and keeps what it was sent."""

    scene: Scene
    scheme: str = "http"
    reads: bool = True
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.reads:
                self.requests.append(await read_request(reader))
            await self.scene(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


Serve = Callable[..., Awaitable[Server]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    return head + await reader.readexactly(int(lines.get(b"content-length", b"0")))


def answer(body: bytes = b"", *, status: str = "200 OK", headers: str = "") -> Scene:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    return say(head.encode() + body)


def redirect(location: str, *, status: str = "302 Found") -> Scene:
    return answer(status=status, headers=f"Location: {location}\r\n")


def say(raw: bytes) -> Scene:
    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return scene


def say_and_reset(raw: bytes) -> Scene:
    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return scene


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(100):
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.02)


async def keep_promising(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        await writer.drain()


async def drip_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(100):
        writer.write(b"X-More: yes\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


class Names(AbstractResolver):
    """Gives its answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        addresses = self.answers[min(len(self.asked), len(self.answers)) - 1]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


class UnknownNames(Names):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown\nforged line")


class SilentNames(Names):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        await asyncio.Event().wait()
        return []


_contacts: list[list[object]] = []


def _note_contact(event: str, arguments: tuple[object, ...]) -> None:
    if _contacts and event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        _contacts[-1].append(arguments[1] if event == "socket.connect" else arguments[0])


@functools.cache
def install_contact_hook() -> None:
    sys.addaudithook(_note_contact)


@contextmanager
def watch_contacts() -> Iterator[list[object]]:
    """Every address that Python connects to, and every name that it looks up, while this is open."""
    install_contact_hook()
    _contacts.append([])
    try:
        yield _contacts[-1]
    finally:
        _contacts.pop()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    running: list[asyncio.Server] = []

    async def start(scene: Scene, *, tls: ssl.SSLContext | None = None, reads: bool = True) -> Server:
        server = Server(scene, scheme="https" if tls else "http", reads=reads)
        running.append(await asyncio.start_server(server.play, "127.0.0.1", 0, ssl=tls))
        server.port = running[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for each in running:
        each.close()


@pytest.fixture
async def client() -> AsyncIterator[GuardedClient]:
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=Names(["127.0.0.1"])) as opened:
        yield opened


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for site.test, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site.test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("site.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "site.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_tls(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


# --- The gate


FORBIDDEN = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0.0.0.0:5432/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[2002:7f00:1::]/",
    "http://[::ffff:100.64.0.1]/",
    "http://[fec0::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1%25lo]/",
    "http://169.254.169.254/",
    "http://100.64.0.1/",
    "http://168.63.129.16/",
    "http://224.0.0.1/",
    "http://169.254.169.254:8888\\@example.org/",
    "http://user:word@example.org/",
    "http://example.org/\r\nX-Injected: yes",
    "http://example.org/ HTTP/1.1",
    "http://example.org:0/",
    "http:///",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x",
    "ftp://127.0.0.1:{port}/",
    "unix:///run/docker.sock",
    "http://example.org/" + "a" * 2_048,
]


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_forbidden_url_is_refused_before_anything_is_sent(url: str, serve: Serve) -> None:
    """A5: one clear line, no connection, and not even a name looked up."""
    server, names = await serve(answer()), Names(["127.0.0.1"])
    async with GuardedClient(user_agent=AGENT, resolver=names) as client:
        with watch_contacts() as contacts, pytest.raises(RefusedError, match=r"refused: ") as caught:
            await client.request("GET", url.format(port=server.port), timeout=ENOUGH)
    assert (contacts, names.asked, server.connections) == ([], [], 0)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "127.0.0.1"],
        ["127.0.0.1", "93.184.215.14"],
        ["2606:4700::1111", "::ffff:10.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["fe80::1%lo"],
        ["127.1"],
    ],
)
async def test_name_with_any_forbidden_address_is_refused(addresses: list[str], serve: Serve) -> None:
    """A5: one public and one private address is one too many; who named the host does not learn its address."""
    server = await serve(answer())
    async with GuardedClient(user_agent=AGENT, resolver=Names(addresses)) as client:
        with watch_contacts() as contacts, pytest.raises(RefusedError, match="not public") as raised:
            await client.request("GET", server.url(host="site.test"), timeout=ENOUGH)
    assert (contacts, server.connections) == ([], 0)
    assert [address for address in addresses if address in str(raised.value)] == []


async def test_the_checked_address_is_the_one_connected_to(serve: Serve) -> None:
    """A5: a name that changes after the check (rebinding) gains nothing, and is checked again when asked again."""
    first, second, names = await serve(answer()), await serve(answer()), Names(["127.0.0.1"], ["127.0.0.2"])
    allowed = parse_networks("127.0.0.1/32")
    async with GuardedClient(user_agent=AGENT, resolver=names, allow_networks=allowed) as client:
        with watch_contacts() as contacts:
            await client.request("GET", first.url(host="site.test"), timeout=ENOUGH)
            with pytest.raises(RefusedError, match="its address is not public"):
                await client.request("GET", second.url(host="site.test"), timeout=ENOUGH)
    assert contacts == [("127.0.0.1", first.port)]
    assert names.asked == ["site.test", "site.test"]


async def test_real_resolver_is_guarded_too(serve: Serve) -> None:
    """A5: localhost, looked up by the system, is refused unless its networks are allowed."""
    server = await serve(answer(b"here"))
    async with GuardedClient(user_agent=AGENT) as client:
        with pytest.raises(RefusedError, match="not public"):
            await client.request("GET", server.url(host="localhost"), timeout=ENOUGH)
    async with GuardedClient(user_agent=AGENT, allow_networks=parse_networks("127.0.0.0/8,::1")) as client:
        assert (await client.request("GET", server.url(host="localhost"), timeout=ENOUGH)).body == b"here"
    assert server.connections == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "site.test", "SITE.test."])
async def test_named_private_network_is_let_through(host: str, serve: Serve, client: GuardedClient) -> None:
    """A5: an operator whose site is on a private network can say so."""
    server = await serve(answer(b"here"))
    assert (await client.request("GET", server.url(host=host), timeout=ENOUGH)).body == b"here"


async def test_international_name_is_asked_for_in_punycode(serve: Serve) -> None:
    server, names = await serve(answer()), Names(["127.0.0.1"])
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=names) as client:
        await client.request("GET", server.url(host="Bücher.example"), timeout=ENOUGH)
    assert names.asked == ["xn--bcher-kva.example"]
    assert f"Host: xn--bcher-kva.example:{server.port}\r\n".encode() in server.requests[0]


async def test_proxy_and_netrc_of_the_environment_are_ignored(
    serve: Serve, client: GuardedClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A5: an inherited HTTP_PROXY would connect to addresses that nobody checked."""
    server, proxy = await serve(answer(b"direct")), await serve(answer(b"proxied"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, proxy.url())
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert (await client.request("GET", server.url(), timeout=ENOUGH)).body == b"direct"
    assert proxy.connections == 0
    assert b"authorization" not in server.requests[0].lower()


# --- What is sent, and what comes back


@pytest.mark.parametrize(
    "target",
    [
        "/indexnow?url=https%3A%2F%2Fexample.com%2Fpage%3Fid%3D1&key=k&keyLocation=https%3a%2f%2fexample.com%2fk.txt",
        "/a/../b//c;d?e=f+g%20h&i='j'|k&%zz=%",
        "/%7Euser/%2E%2E/x?=&&=",
    ],
)
async def test_path_and_query_arrive_byte_for_byte(target: str, serve: Serve, client: GuardedClient) -> None:
    """A15: nothing is decoded or encoded on the way."""
    server = await serve(answer())
    await client.request("GET", server.url(target), timeout=ENOUGH)
    assert server.requests[0].startswith(f"GET {target} HTTP/1.1\r\n".encode())


async def test_post_carries_headers_body_and_user_agent(serve: Serve, client: GuardedClient) -> None:
    """A16: the request is the caller's, with our name on it."""
    server = await serve(answer(b'{"d":null}', status="202 Accepted", headers="X-One: 1\r\n"))
    headers = {"Content-Type": "application/json; charset=utf-8"}
    got = await client.request("POST", server.url("/in"), headers=headers, body=b'{"a":1}', timeout=ENOUGH)
    assert (got.status, got.body, got.headers["x-ONE"]) == (202, b'{"d":null}', "1")
    assert (got.url.text, got.elapsed > timedelta(0)) == (server.url("/in"), True)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /in HTTP/1.1"
    assert body == b'{"a":1}'
    assert {f"User-Agent: {AGENT}", "Content-Type: application/json; charset=utf-8"} <= set(lines)


async def test_encoded_body_is_handed_over_as_it_came(serve: Serve, client: GuardedClient) -> None:
    """A5: whoever decodes must bound it, so nothing is decoded here, and by default nothing encoded is asked for."""
    packed = gzip.compress(b"x" * 1_000)
    server = await serve(answer(packed, headers="Content-Encoding: gzip\r\n"))
    async with client.stream("GET", server.url(), timeout=ENOUGH) as stream:
        chunks = [chunk async for chunk in stream.chunks()]
    assert (stream.status, stream.headers["content-encoding"], b"".join(chunks)) == (200, "gzip", packed)
    assert b"Accept-Encoding: identity\r\n" in server.requests[0]


async def test_cookie_is_not_kept(serve: Serve, client: GuardedClient) -> None:
    server = await serve(answer(headers="Set-Cookie: a=b\r\n"))
    for _ in range(2):
        await client.request("GET", server.url(host="site.test"), timeout=ENOUGH)
    assert b"cookie" not in server.requests[1].lower()


async def test_connection_is_used_again_after_a_whole_answer(serve: Serve, client: GuardedClient) -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2")
        await writer.drain()

    server = await serve(twice)
    bodies = [(await client.request("GET", server.url(), timeout=ENOUGH)).body for _ in range(2)]
    assert (bodies, server.connections) == ([b"1", b"2"], 1)


@pytest.mark.parametrize("body", [None, b"pages"])
async def test_a_caller_may_hold_the_bytes_back_once_there_is_a_connection(
    client: GuardedClient, serve: Serve, body: bytes | None
) -> None:
    """A17: until then the server has a connection and not a byte; the wait uses up none of the request's time."""
    server = await serve(answer(b"here"))
    seen: list[tuple[int, int]] = []

    async def hold_back() -> None:
        await asyncio.sleep(2 * SHORT.total_seconds())
        seen.append((server.connections, len(server.requests)))

    method = "GET" if body is None else "POST"
    async with client.stream(method, server.url(), body=body, timeout=SHORT * 1.5, before_sending=hold_back) as stream:
        assert await stream.read(limit=10) == b"here"
    assert (set(seen), len(server.requests)) == ({(1, 0)}, 1)


@pytest.mark.parametrize("asked", [1, 2])
async def test_a_request_that_its_caller_gives_up_is_not_sent(client: GuardedClient, serve: Serve, asked: int) -> None:
    """A20: a stop while the request waits for its turn, before its head and before its body."""
    server = await serve(answer())
    left = asked

    async def give_up() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopRequestedError("enough")

    with pytest.raises(StopRequestedError):
        async with client.stream("POST", server.url(), body=b"pages", timeout=ENOUGH, before_sending=give_up):
            raise AssertionError
    assert server.requests == []


async def test_request_lost_on_a_used_connection_counts_as_sent(serve: Serve, client: GuardedClient) -> None:
    """A28: it may have been read before the connection went."""

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        await read_request(reader)

    server = await serve(answer_once)
    await client.request("GET", server.url(), timeout=ENOUGH)
    with pytest.raises(NetworkError, match="without an answer") as caught:
        await client.request("GET", server.url(), timeout=ENOUGH)
    assert (caught.value.sent, server.connections) == (True, 1)


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nX-B: b"}, {"X-A": "a\x00"}, {"X-A\r\nX-B": "b"}, {"": "a"}, {"If-None-Match": "\udcff"}]
)
async def test_header_that_could_forge_another_is_refused(
    headers: dict[str, str], serve: Serve, client: GuardedClient
) -> None:
    """A9: an ETag comes from a stranger and goes back out."""
    server = await serve(answer())
    with pytest.raises(RefusedError, match="header"):
        await client.request("GET", server.url(), headers=headers, timeout=ENOUGH)
    assert server.connections == 0


async def test_request_that_cannot_be_written_is_refused(serve: Serve, client: GuardedClient) -> None:
    server = await serve(answer())
    with pytest.raises(RefusedError, match="token"):
        await client.request("GET /\r\n", server.url(), timeout=ENOUGH)
    with pytest.raises(RefusedError, match="cannot be written"):
        await client.request("POST", server.url(), headers={"Content-Length": "x"}, body=b"a", timeout=ENOUGH)
    assert server.requests == []


@pytest.mark.parametrize("head", ["Content-Length: 2000\r\nConnection: close\r\n", ""])
async def test_body_over_the_limit_is_an_error_and_one_at_the_limit_is_not(
    head: str, serve: Serve, client: GuardedClient
) -> None:
    """A5: the limit holds whatever length the server claims."""
    server = await serve(say(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + b"x" * 2_000))
    assert len((await client.request("GET", server.url(), timeout=ENOUGH, limit=2_000)).body) == 2_000
    with pytest.raises(AnswerTooLargeError, match="longer than 1,999 bytes"):
        await client.request("GET", server.url(), timeout=ENOUGH, limit=1_999)


async def test_endless_body_is_cut_off_at_the_limit(serve: Serve, client: GuardedClient) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"x" * 65_536)
            await writer.drain()

    server = await serve(pour)
    with pytest.raises(AnswerTooLargeError):
        await client.request("GET", server.url(), timeout=ENOUGH)


# --- Redirects


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("http://10.0.0.1/", "10.0.0.1 is not a public address"),
        ("http://169.254.169.254/latest/meta-data/", "not a public address"),
        ("//[::1]/", "not a public address"),
        ("http://2130706433/", "disguise"),
        ("file:///etc/passwd", "only http"),
        ("gopher://127.0.0.1/", "only http"),
        ("http://me:word@site.test/", "user name"),
        ("http://169.254.169.254\\@site.test/", "backslash"),
        ("/" + "a" * 2_048, "longer than"),
    ],
)
async def test_redirect_goes_through_the_whole_gate_again(
    location: str, rule: str, serve: Serve, client: GuardedClient
) -> None:
    """A5: an allowed site cannot send the client to a forbidden place."""
    server = await serve(redirect(location))
    with watch_contacts() as contacts, pytest.raises(RefusedError, match=rule):
        await client.request("GET", server.url(), timeout=ENOUGH, follow_redirects=True)
    assert contacts == [("127.0.0.1", server.port)]


async def test_redirect_to_a_name_with_a_private_address_is_refused(serve: Serve) -> None:
    """A5: a redirect's name is looked up and judged like any other."""
    server = await serve(redirect("http://inside.test/"))
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=names) as client:
        with pytest.raises(RefusedError, match=r"http://inside\.test/ refused: its address is not public"):
            await client.request("GET", server.url(host="site.test"), timeout=ENOUGH, follow_redirects=True)
    assert names.asked == ["site.test", "inside.test"]


def count_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, server: Server) -> Awaitable[None]:
    """/n redirects to n-1, relative; /0 is the end."""
    left = int(server.requests[-1].split(b" ")[1].removeprefix(b"/r/"))
    scene = redirect(f"{left - 1}") if left else answer(b"arrived")
    return scene(reader, writer)


async def test_five_relative_redirects_are_followed_and_six_are_not(serve: Serve, client: GuardedClient) -> None:
    """A5: at most five."""
    server = await serve(hang)
    server.scene = functools.partial(count_down, server=server)
    got = await client.request("GET", server.url("/r/5"), timeout=ENOUGH, follow_redirects=True)
    assert (got.body, got.url.path, server.connections) == (b"arrived", "/r/0", 6)
    with pytest.raises(RefusedError, match="more than 5 redirects"):
        await client.request("GET", server.url("/r/6"), timeout=ENOUGH, follow_redirects=True)
    assert server.connections == 12


async def test_redirect_is_followed_although_the_server_closes_the_connection_unannounced(
    serve: Serve, client: GuardedClient
) -> None:
    """A5: such a server would redirect every retry to a dead connection again."""

    async def redirect_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = server.requests[-1].split()[1]
        if asked == b"/old":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
        # It reads the next request, too, and hangs up without a word.
        await read_request(reader)

    server = await serve(redirect_and_close)
    got = await client.request("GET", server.url("/old"), timeout=ENOUGH, follow_redirects=True)
    assert (got.status, got.body, got.url.path) == (200, b"good", "/new")
    assert server.connections == 2


async def test_redirect_loop_is_seen_at_once(serve: Serve, client: GuardedClient) -> None:
    """A5: a loop ends when it closes, not after five rounds."""
    server = await serve(redirect("/a"))
    with pytest.raises(RefusedError, match="circle"):
        await client.request("GET", server.url("/a"), timeout=ENOUGH, follow_redirects=True)
    assert server.connections == 1


async def test_redirect_is_an_answer_like_any_other_unless_followed(serve: Serve, client: GuardedClient) -> None:
    server = await serve(redirect("http://10.0.0.1/"))
    got = await client.request("GET", server.url(), timeout=ENOUGH)
    assert (got.status, got.headers["Location"]) == (302, "http://10.0.0.1/")


@pytest.mark.parametrize(("host", "kept"), [("127.0.0.1", True), ("site.test", False)])
async def test_secret_headers_stay_with_their_origin(
    host: str, kept: bool, serve: Serve, client: GuardedClient
) -> None:
    """A4: another origin sees harmless headers only."""
    server = await serve(hang)
    server.scene = redirect(server.url("/b", host=host))
    secrets = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Signature": "s"}
    with pytest.raises(RefusedError, match="circle"):
        await client.request(
            "GET", server.url("/a"), headers={**secrets, "Accept": "text/xml"}, timeout=ENOUGH, follow_redirects=True
        )
    names = {line.partition(":")[0] for line in server.requests[1].decode().split("\r\n")[1:]}
    assert names & set(secrets) == (set(secrets) if kept else set())
    assert b"Accept: text/xml\r\n" in server.requests[1]


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [("POST", "303 S", "GET"), ("POST", "302 F", "GET"), ("POST", "307 T", "POST"), ("HEAD", "303 S", "HEAD")],
)
async def test_redirect_changes_the_method_as_browsers_do(
    method: str, status: str, then: str, serve: Serve, client: GuardedClient
) -> None:
    server = await serve(hang)
    server.scene = redirect("/b", status=status)
    url, headers, body = server.url("/a"), {"Content-Language": "en"}, b"abc" if method == "POST" else None
    with pytest.raises(RefusedError, match="circle"):
        await client.request(method, url, headers=headers, body=body, timeout=ENOUGH, follow_redirects=True)
    assert server.requests[1].startswith(f"{then} /b ".encode())
    assert server.requests[1].endswith(b"abc") is (then == "POST")
    assert (b"Content-" in server.requests[1]) is (then != "GET")


async def test_body_is_never_carried_to_another_origin(serve: Serve, client: GuardedClient) -> None:
    """A26: a batch and its key go to the engine that was named, and to no other."""
    other = await serve(answer())
    server = await serve(redirect(other.url(), status="308 Moved"))
    with pytest.raises(RefusedError, match="redirects a POST to another origin"):
        await client.request("POST", server.url(), body=b"{}", timeout=ENOUGH, follow_redirects=True)
    assert other.connections == 0


async def test_redirect_from_https_to_http_carries_nothing_secret(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """A5: sites do redirect so, and a GET without the caller's secrets may follow."""
    plain = await serve(answer(b"plain"))
    secure = await serve(redirect(plain.url(host="site.test")), tls=server_tls)
    names = Names(["127.0.0.1"])
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=names, tls=client_tls) as client:
        got = await client.request(
            "GET", secure.url(host="site.test"), headers={"X-Key": "k"}, timeout=ENOUGH, follow_redirects=True
        )
    assert (got.body, got.url.scheme) == (b"plain", "http")
    assert b"X-Key: k" in secure.requests[0]
    assert b"X-Key" not in plain.requests[0]


# --- What breaks


PARTIAL = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
BROKEN: dict[str, tuple[Scene, str]] = {
    "closed before the answer": (say(b""), "without an answer"),
    "reset before the answer": (say_and_reset(b""), "without an answer"),
    "closed in the header": (say(b"HTTP/1.1 200 OK\r\nContent-"), "without an answer"),
    "closed in the body": (say(PARTIAL), "broke off"),
    "reset in the body": (say_and_reset(PARTIAL), "failed: "),
    "not HTTP": (say(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "not valid HTTP"),
    "bad chunk": (say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "failed: "),
    "two lengths": (say(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "not valid HTTP"),
    "giant header": (say(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"), "not valid HTTP"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_broken_exchange_is_a_network_error_and_is_sent_only_once(
    case: str, method: str, serve: Serve, client: GuardedClient
) -> None:
    """A21, A28: one call is one request, and what may have arrived is marked as sent."""
    scene, reason = BROKEN[case]
    server = await serve(scene)
    with pytest.raises(NetworkError, match=reason) as caught:
        await client.request(method, server.url(), body=b"x" if method == "POST" else None, timeout=ENOUGH)
    assert (caught.value.sent, server.connections) == (True, 1)
    assert not isinstance(caught.value, FetchTimeoutError)


async def test_interim_answers_without_an_end_are_not_read_to_the_end_of_the_time(
    serve: Serve, client: GuardedClient
) -> None:
    """A5: `100 Continue` for ever costs some hundred kilobytes and a moment, not the whole time at full speed."""
    server, started = await serve(keep_promising), time.process_time()
    with pytest.raises(NetworkError, match="head has no end") as caught:
        await client.request("GET", server.url(), timeout=ENOUGH)
    assert caught.value.sent
    assert time.process_time() - started < 1
    assert server.connections == 1


@pytest.mark.parametrize("flood", [b"1" + b";extension" * 500, b"0" * 5_000], ids=["extensions", "a size"])
async def test_chunks_without_an_end_are_not_read_to_the_end_of_the_time(
    serve: Serve, client: GuardedClient, flood: bytes
) -> None:
    """A5: the extensions of a chunk, or its size, for ever: that is no body, so no limit of a body ends it."""

    async def send_no_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n" + flood[:1])
        while True:
            writer.write(flood[1:])
            await writer.drain()

    server, started = await serve(send_no_body), time.process_time()
    with pytest.raises(NetworkError, match="goes on without a body"):
        await client.request("GET", server.url(), timeout=ENOUGH)
    assert time.process_time() - started < 1


async def test_a_body_may_come_in_chunks_of_one_byte(serve: Serve, client: GuardedClient) -> None:
    """A5: some servers do that; the connection is kept."""

    async def send_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answers in range(2):
            if answers:
                await read_request(reader)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
            await writer.drain()

    server = await serve(send_bytes)
    for _ in range(2):
        assert (await client.request("GET", server.url(), timeout=ENOUGH)).body == b"x" * 50_000
    assert server.connections == 1


async def test_a_few_interim_answers_are_allowed_and_the_connection_is_kept(
    serve: Serve, client: GuardedClient
) -> None:
    """A5: servers do send `100 Continue` and `103 Early Hints`; the body may come in the same packet."""
    body = b"x" * 300_000

    async def promise_and_keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answers in range(2):
            if answers:
                await read_request(reader)
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + body)
            await writer.drain()

    server = await serve(promise_and_keep)
    for _ in range(2):
        assert (await client.request("GET", server.url(), timeout=ENOUGH)).body == body
    assert server.connections == 1


@pytest.mark.parametrize("scene", [hang, drip, drip_header])
async def test_timeout_covers_the_whole_answer(scene: Scene, serve: Serve, client: GuardedClient) -> None:
    """A5: a server that hangs or drips does not outlast the time given."""
    server, started = await serve(scene), asyncio.get_running_loop().time()
    with pytest.raises(FetchTimeoutError, match=r"in 0\.2 s") as caught:
        await client.request("GET", server.url(), timeout=SHORT)
    assert caught.value.sent
    assert asyncio.get_running_loop().time() - started < 2


async def test_timeout_covers_all_hops_together(serve: Serve, client: GuardedClient) -> None:
    async def dawdle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        await redirect(f"/{server.connections}")(reader, writer)

    server = await serve(dawdle)
    with pytest.raises(FetchTimeoutError):
        await client.request("GET", server.url(), timeout=timedelta(seconds=0.25), follow_redirects=True)
    assert server.connections <= 3


async def test_time_the_caller_takes_between_chunks_is_not_counted(serve: Serve, client: GuardedClient) -> None:
    """A5: a slow database is not a slow site."""
    server = await serve(answer(b"x" * 1_000_000))
    async with client.stream("GET", server.url(), timeout=timedelta(seconds=0.5)) as stream:
        chunks = stream.chunks()
        size = len(await anext(chunks))
        await asyncio.sleep(0.6)
        size += sum([len(chunk) async for chunk in chunks])
    assert size == 1_000_000


async def test_connection_is_closed_when_the_caller_leaves_early(serve: Serve, client: GuardedClient) -> None:
    gone = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PARTIAL)
        await reader.read()
        gone.set()

    server = await serve(wait_for_end)
    with pytest.raises(LookupError):
        async with client.stream("GET", server.url(), timeout=ENOUGH) as stream:
            raise LookupError(stream.status)
    await asyncio.wait_for(gone.wait(), timeout=5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("names", "reason", "timeout"),
    [
        (UnknownNames(), r"cannot be resolved: unknown\\nforged line", ENOUGH),
        (Names([]), "cannot be resolved: no address", ENOUGH),
        (Names(["127.0.0.1"]), "no connection: Connection refused", ENOUGH),
        (SilentNames(), "no complete answer", SHORT),
    ],
)
async def test_request_without_a_connection_counts_as_not_sent(names: Names, reason: str, timeout: timedelta) -> None:
    """A28: what cannot have arrived is not charged."""
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=names) as client:
        with pytest.raises(NetworkError, match=reason) as caught:
            await client.request("GET", f"http://site.test:{free_port()}/", timeout=timeout)
    assert caught.value.sent is False


@pytest.mark.parametrize(
    ("host", "trusted", "reason"),
    [("site.test", False, "is not valid: self"), ("other.test", True, "is not valid: Hostname")],
)
async def test_certificate_must_be_trusted_and_name_the_host(
    host: str, trusted: bool, reason: str, serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """A26: a key is not sent to anybody who answers."""
    server, tls = await serve(answer(), tls=server_tls), client_tls if trusted else None
    names = Names(["127.0.0.1"])
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=names, tls=tls) as client:
        with pytest.raises(NetworkError, match=reason) as caught:
            await client.request("GET", server.url(host=host), timeout=ENOUGH)
    assert (caught.value.sent, server.requests) == (False, [])


TRUSTING = """
import asyncio, os, sys
from tidings.core.heap import load_quickly
with load_quickly():
    from tests.core.test_http import AGENT, ENOUGH, LOOPBACK, GuardedClient, Names
async def fetch():
    async with GuardedClient(user_agent=AGENT, allow_networks=LOOPBACK, resolver=Names(["127.0.0.1"])) as client:
        return (await client.request("GET", sys.argv[1], timeout=ENOUGH)).status
print(asyncio.run(fetch()), os.environ["SSL_CERT_FILE"])
"""


@pytest.mark.thorough
async def test_a_command_trusts_the_certificates_of_its_machine(
    serve: Serve, server_tls: ssl.SSLContext, certificate: Path
) -> None:
    """A26: although it loads its modules without them."""
    server = await serve(answer(), tls=server_tls)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TRUSTING, server.url(host="site.test")),
        env={**os.environ, "SSL_CERT_FILE": str(certificate)},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert printed.decode().split() == ["200", str(certificate)]


async def test_tls_that_fails_or_hangs_counts_as_not_sent(serve: Serve, client: GuardedClient) -> None:
    """A28: without a handshake nothing was sent."""
    speaks, hangs = await serve(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), reads=False), await serve(hang, reads=False)
    for server, reason, timeout in ((speaks, "no TLS connection", ENOUGH), (hangs, "no complete answer", SHORT)):
        with pytest.raises(NetworkError, match=reason) as caught:
            await client.request("GET", server.url().replace("http:", "https:"), timeout=timeout)
        assert caught.value.sent is False


# --- What is said about it


def collect_text(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    gc.collect()
    return "".join([str(error), repr(error), *traceback.format_exception(error), caplog.text])


LEAKS: dict[str, Scene] = {
    **{case: scene for case, (scene, _) in BROKEN.items()},
    "hang": hang,
    "drip": drip,
    "too large": answer(b"x" * 2_000),
    "redirect to a private address": redirect(f"http://10.0.0.1/?k={CANARY}"),
    "redirect with a password": redirect(f"http://me:{CANARY}@site.test/"),
    "redirect to a file": redirect(f"file:///x?{CANARY}"),
    "redirect in a circle": redirect(f"/p?apikey={CANARY}"),
    "redirect to another origin": redirect(f"http://site.test/?{CANARY}", status="307 Again"),
    "redirect that is no URL": redirect(f"http://[x/?{CANARY}"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", LEAKS)
@pytest.mark.parametrize("body", [None, b"x" * 3_000_000])
async def test_no_failure_shows_the_query(
    case: str, body: bytes | None, serve: Serve, client: GuardedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A4: Bing's key is in the query; neither message, repr, traceback nor log may hold it."""
    server = await serve(LEAKS[case])
    with pytest.raises(FetchError) as caught:
        await client.request(
            "POST" if body else "GET",
            server.url(f"/p?apikey={CANARY}"),
            headers={"X-Key": CANARY},
            body=body,
            timeout=SHORT,
            limit=1_000,
            follow_redirects=True,
        )
    text = collect_text(caught.value, caplog)
    assert CANARY not in text
    assert " refused: " in text or " failed: " in text
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/p?k={canary}",
        "http://10.0.0.1/p?k={canary}",
        "http://site.test:{port}/p?k={canary}",
        "https://site.test:99999/p?k={canary}",
        "http://me:{canary}@site.test/",
        "http://me:{canary}\\@site.test/",
        "ftp://site.test/?{canary}",
        "http://site.test/\n?{canary}",
        "http://site.test/#{canary}",
    ],
)
async def test_no_refusal_shows_query_or_password(
    url: str, client: GuardedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A4: also where the URL never got as far as the network."""
    with pytest.raises(FetchError) as caught:
        await client.request("GET", url.format(port=free_port(), canary=CANARY), timeout=ENOUGH)
    assert CANARY not in collect_text(caught.value, caplog)
    assert str(caught.value).isprintable()
