"""The crawl API as people run it: `tidings serve` in a process of its own, while keys are rotated in another, while
everything goes wrong, and with a canary for a cookie. Also the three proofs that what crawls cannot write."""

import asyncio
import base64
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.cli.terminal import Terminal
from tests.test_serve import PATIENCE, TOKEN, Served, Server
from tests.traces import find_traces, spell
from tidings.announce.site.site import make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.collect.crawl.cookies.table import open_cookie
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, ReadableDatabase, open_database
from tidings.core.db.revisions import prepare_database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import bilibili, weibo, xiaohongshu
from tidings.sandbox.media.platform import SandboxMedia
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.settings.settings import Settings
from tidings.wiring.crawl import open_crawler
from tidings.wiring.opening import open_installation

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tidings"
SEED = 20261115
MANY = "1000000"


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    """In no hurry to be polite: what is asked is the sandbox."""
    opened = Terminal(tmp_path)
    opened.data_dir.mkdir(mode=0o700)
    opened.variables |= {"TIDINGS_TOKEN": TOKEN, "PLATFORM_INTERVAL_SECONDS": "0", "COOKIE_INTERVAL_SECONDS": "0"}
    yield opened
    await opened.close()


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    async with ClientSession() as opened:
        yield opened


# --- Rotating the master key ---


def session_of(number: int) -> str:
    return f"_2A-a-long-session-of-account-{number}"


@dataclass(frozen=True, slots=True)
class Vault:
    """Cookies and sites whose secrets the old key has encrypted, and the ring that has both keys."""

    database: Database
    old: str = field(default_factory=new_master_key)
    new: str = field(default_factory=new_master_key)

    @property
    def ring(self) -> str:
        return f"k2:{self.new},k1:{self.old}"

    async def fill(self, *, cookies: int, sites: int) -> None:
        keys, clock = KeyRing.parse(f"k1:{self.old}"), SystemClock()
        records = CookieRecords(self.database, keys=keys, clock=clock)
        for number in range(cookies):
            secret = Secret(f"SUB={session_of(number)}")
            await records.add(make_cookie(f"c{number:03}", platform="weibo", secret=secret, daily_limit=int(MANY)))
        for number in range(sites):
            site = make_site(
                site_id=f"s{number:03}", sitemap_urls=["https://example.com/sitemap.xml"], key=f"indexnow-key-{number}"
            )
            await SiteRecords(self.database, keys=keys, clock=clock).save(site, origin=Origin.API)

    async def count(self, key_id: str) -> int:
        """How many secrets this key has encrypted."""
        statement = (
            "SELECT (SELECT count(*) FROM tbl_cookie WHERE encryption_key_id = :id)"
            " + (SELECT count(*) FROM sites WHERE encryption_key_id = :id)"
        )
        async with self.database.read() as connection:
            return int((await connection.execute(text(statement), {"id": key_id})).scalar_one())

    async def read_all(self, ring: str) -> list[str]:
        """Every secret in clear; one that cannot be read raises."""
        keys = KeyRing.parse(ring)
        clock = SystemClock()
        cookies = await CookieRecords(self.database, keys=keys, clock=clock).list_all()
        sites = await SiteRecords(self.database, keys=keys, clock=clock).list_all()
        return [open_cookie(cookie, keys=keys).reveal() for cookie in cookies] + [site.key.reveal() for site in sites]


@asynccontextmanager
async def open_vault(url: str, *, cookies: int, sites: int) -> AsyncIterator[Vault]:
    database = open_database(url)
    try:
        await prepare_database(database)
        vault = Vault(database)
        await vault.fill(cookies=cookies, sites=sites)
        yield vault
    finally:
        await database.close()


async def search(served: Served, http: ClientSession) -> dict[str, Any]:
    status, envelope = await post(served, http, "/crawler/search", {"platform": "weibo", "keyword": "生活"})
    assert isinstance(envelope, dict)
    return {"status": status, **envelope}


async def post(served: Served, http: ClientSession, path: str, document: object, **options: Any) -> tuple[int, Any]:
    url, headers = served.said[-1].split()[3] + path, {"Authorization": f"Bearer {TOKEN}"}
    async with http.post(url, json=document, headers=headers | options.pop("headers", {}), **options) as answer:
        return answer.status, await answer.json()


async def test_rotating_the_master_key_while_the_api_serves_fails_no_request(
    terminal: Terminal, http: ClientSession
) -> None:
    """C22: requests before, during and after; then the API works without the old key."""
    url = f"sqlite:///{terminal.data_dir / 'tidings.db'}"
    async with AsyncExitStack() as stack:
        vault = await stack.enter_async_context(open_vault(url, cookies=150, sites=3))
        platform = await stack.enter_async_context(
            weibo.SandboxWeibo(sessions=[session_of(number) for number in range(150)])
        )
        terminal.variables |= {"WEIBO_BASE_URL": platform.origin, "COOKIE_MASTER_KEY": vault.ring}
        served = await Server(terminal, http).start()
        answers = [await search(served, http)]
        assert await vault.count("k1") == 153
        rotating = asyncio.create_task(terminal.run("keys", "rotate"))
        during = await ask_until(rotating.done, served, http)
        ended = await rotating
        # As long as the API may go by what it read before, and a little longer.
        over = time.monotonic() + 1.5
        after = await ask_until(lambda: time.monotonic() > over, served, http)
        await served.end()
        answers += during + after
        alone = await Server(terminal, http).start(COOKIE_MASTER_KEY=f"k2:{vault.new}")
        answers += [await search(alone, http) for _ in range(10)]
        await alone.end()
        assert (ended.code, ended.out) == (0, "Encrypted 153 stored secrets again.\n")
        assert (await vault.count("k1"), await vault.count("k2")) == (0, 153)
    assert len(during) > 4
    assert len(after) > 4
    assert Counter(str(each["error"]) for each in answers) == {"None": len(answers)}
    assert "cookie.unreadable" not in terminal.log


async def ask_until(done: Any, served: Served, http: ClientSession) -> list[dict[str, Any]]:
    """Four callers, each with one request after the other."""

    async def ask() -> list[dict[str, Any]]:
        answers = []
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while not done():
                answers.append(await search(served, http))
        return answers

    return [answer for answers in await asyncio.gather(*(ask() for _ in range(4))) for answer in answers]


async def test_a_rotation_that_is_killed_at_any_moment_leaves_every_row_readable(
    terminal: Terminal, database_url: str
) -> None:
    """C22: `tidings keys rotate` and kill -9, at moments by chance; each goes on where the last one ended."""
    async with open_vault(database_url, cookies=400, sites=20) as vault:
        terminal.variables |= {"TIDINGS_DATABASE_URL": database_url, "COOKIE_MASTER_KEY": vault.ring}
        before = await vault.read_all(vault.ring)
        timestamps = sorted(random.Random(SEED).sample(range(1, 300), 3))
        for enough in timestamps:
            process = await terminal.start("keys", "rotate")
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while await vault.count("k2") < enough and process.returncode is None:
                    pass
            process.kill()
            await process.communicate()
            assert await vault.read_all(vault.ring) == before
            assert await vault.count("k1") > 0, "it was too fast to be killed within"
        left = await vault.count("k1")
        ended = await terminal.run("keys", "rotate")
        assert (ended.code, ended.out) == (0, f"Encrypted {left} stored secrets again.\n")
        assert await vault.read_all(f"k2:{vault.new}") == before


# --- C1: what crawls cannot write ---

LOADED = """
import json, sys
import tidings.collect.crawl.crawler, tidings.collect.crawl.cookies.pool
import tidings.collect.crawl.envelope, tidings.collect.crawl.platforms
from tidings.collect.crawl.platforms.registry import BUILT_IN
for place in BUILT_IN.values():
    __import__(place.partition(":")[0])
print(json.dumps([name for name in sys.modules if name.startswith("tidings.")]))
"""


def test_what_crawls_does_not_load_what_writes() -> None:
    """C1, first proof: the contract of pyproject.toml, seen in a process that has loaded the crawl API and no more."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, timeout=60, check=True)
    loaded = set(json.loads(ran.stdout))
    assert {
        "tidings.collect.crawl.crawler",
        "tidings.collect.crawl.platforms.weibo",
        "tidings.collect.crawl.cookies.pool",
    } <= loaded
    writers = {"tidings.collect.write.cookies", "tidings.wiring"}
    assert loaded & writers == set()
    assert not [name for name in loaded if name.startswith("tidings.announce")]


WRITING = (
    "UPDATE tbl_cookie SET daily_used = 0",
    "DELETE FROM tbl_cookie",
    "INSERT INTO pace (host, next_at) VALUES ('intruder', 0)",
    "CREATE TABLE intruder (id INTEGER)",
    "DROP TABLE tbl_cookie",
)


@pytest.mark.parametrize("statement", WRITING)
async def test_the_crawl_apis_database_refuses_every_write(
    tmp_path: Path, database_url: str, keys: KeyRing, statement: str
) -> None:
    """C1, second proof: on the very connection that the service gives to what crawls."""
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=Secret(database_url),
        master_key=Secret(new_master_key()),
        allow_networks=(ip_network("127.0.0.0/8"),),
    )
    async with open_installation(settings, redactor=Redactor()) as installation, open_crawler(installation) as crawler:
        database = crawler.pool.database
        assert isinstance(database, ReadableDatabase)
        assert not hasattr(database, "write")
        with pytest.raises(DBAPIError):
            await execute(database, statement)
        async with installation.database.write() as connection:
            await connection.execute(text("UPDATE tbl_cookie SET daily_used = 0"))


async def execute(database: ReadableDatabase, statement: str) -> None:
    async with database.read() as connection:
        await connection.execute(text(statement))


def grep(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = ["grep", "-ri", "--include=*.py", "feishu", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_crawls_does_not_know_the_name_of_what_is_written_to(tmp_path: Path) -> None:
    """C1, third proof: `grep -ri feishu`; a path that is not there would be code 2."""
    web = SOURCE / "web"
    found = grep(SOURCE / "collect" / "crawl", web / "routes" / "collect" / "crawler.py", web / "models" / "crawler.py")
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "")
    (tmp_path / "planted.py").write_text("import FeiShu\n")
    assert grep(tmp_path).returncode == 0


# --- C7: the canary ---

# Every character that one spelling or another changes, and no semicolon, which would end it.
CANARY = "Kana+rien/vogel=7f3b&9c%2Fd1#e8?a4\"f6'0\\=="
COOKIES = {
    "bilibili": f"SESSDATA={CANARY}; buvid3=device",
    "weibo": f"SUB={CANARY}; _T_WM=device",
    "xiaohongshu": f"a1=19a0tidingssandboxdevice0000000000000000000000000000; web_session={CANARY}",
    "rogue": f"session={CANARY}",
}
NOTES = {"bilibili": bilibili.name_video(30), "weibo": weibo.name_post(30), "xiaohongshu": "6" * 24}
# Somebody's own platform, of the worst kind: whatever it does, it has the cookie in its hands.
ROGUE = """
from tests.traces import spell
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note, NoteKind
from tidings.collect.crawl.platforms.protocol import NoteReference, SearchPage
from tidings.collect.crawl.platforms.protocol import Hit

def choose(cookie, number):
    header = cookie.reveal()
    value = header.partition("=")[2]
    return [*spell(value).values(), *spell(header).values()][number]

class Offered:
    name = "rogue"
    needs_cookie = True

    def __init__(self, tools):
        pass

    async def search(self, keyword, *, page, cookie):
        form = choose(cookie, page - 1)
        hit = Hit(platform="rogue", note_id="one", url=f"https://rogue.example/?next={form}", title=form)
        return SearchPage(hits=(hit,), page=page, has_more=False)

    async def detail(self, reference, *, cookie):
        deed, number = reference.note_id.split("-")
        form = choose(cookie, int(number))
        if deed == "raise":
            try:
                raise KeyError(form)
            except KeyError as error:
                raise RuntimeError(f"on the way with {form}") from error
        if deed == "refuse":
            raise CrawlError(ErrorCode.PLATFORM_ERROR, f"rogue: {form} was refused")
        return Note(platform="rogue", note_id=form, url="https://rogue.example/", kind=NoteKind.TEXT,
                    title="a note", text=f"before {form} after", tags=(form,))
"""


@dataclass(frozen=True, slots=True)
class Heard:
    """All that the API has answered."""

    served: Served
    http: ClientSession
    answers: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    async def ask(self, path: str, document: object, **options: Any) -> str:
        """Returns the code of the answer."""
        url, headers = self.served.said[-1].split()[3] + path, {"Authorization": f"Bearer {TOKEN}"}
        headers |= options.pop("headers", {})
        async with self.http.post(url, json=document, headers=headers, **options) as answer:
            body = await answer.text()
            self.answers.extend((body, repr(answer.headers)))
        envelope = json.loads(body)
        errors = [each["error"] for each in (envelope, *envelope.get("items", ()))]
        self.codes.update(error["code"] if error else "OK" for error in errors)
        if traces := find_traces(self.answers[-2] + self.answers[-1], CANARY):
            self.leaks.append(f"{path} {document} was answered {body}: {sorted(traces)}")
        return envelope["error"]["code"] if envelope["error"] else "OK"

    async def ask_everything(self, platform: str, note_id: str) -> None:
        """Search, detail and batch, at once."""
        item = {"note_id": note_id, "xsec_token": "token"}
        await asyncio.gather(
            self.ask("/crawler/search", {"platform": platform, "keyword": "生活"}),
            self.ask("/crawler/detail", {"platform": platform, **item}),
            self.ask("/crawler/detail/batch", {"platform": platform, "items": [item]}),
        )


def list_faults(module: Any) -> Iterable[Fault]:
    """All that this platform answers when it refuses, and answers that repeat the cookie in every spelling."""
    for fault in vars(module).values():
        if isinstance(fault, Fault):
            # One that drips ends by its time limit, which is the longest part of this test.
            yield replace(fault, path=DETAIL_PATHS[module]) if fault.kind is FaultKind.DRIP else fault
    for form in spell(CANARY).values():
        yield Fault(status=400, body=f"<html>no such session: {form}</html>", headers={"X-Session": quote(form)})
    message = json.dumps(f"the session {CANARY} is over")
    for code in ("-101", "0", json.dumps(CANARY)):
        body = f'{{"code":{code},"ok":{code},"success":false,"message":{message},"msg":{message},"data":{message}}}'
        yield Fault(status=200, body=body)


DETAIL_PATHS = {bilibili: bilibili.VIEW_PATH, weibo: weibo.SHOW_PATH, xiaohongshu: xiaohongshu.FEED_PATH}


def offer_rogue(folder: Path) -> None:
    """A package as an installer leaves it."""
    (folder / "rogue.py").write_text(ROGUE)
    metadata = folder / "rogue-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rogue\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tidings.platforms]\nrogue = rogue:Offered\n")


@asynccontextmanager
async def open_platforms(terminal: Terminal) -> AsyncIterator[dict[Any, SandboxMedia]]:
    """Three platforms that know the canary, and one that is somebody's own."""
    packages = terminal.folder / "packages"
    packages.mkdir()
    offer_rogue(packages)
    terminal.variables["PYTHONPATH"] = f"{packages}:{ROOT}"
    async with (
        bilibili.SandboxBilibili(sessions=[CANARY]) as first,
        weibo.SandboxWeibo(sessions=[CANARY]) as second,
        xiaohongshu.SandboxXiaohongshu(sessions=[CANARY]) as third,
    ):
        for each in (first, second, third):
            terminal.variables[f"{each.name.upper()}_BASE_URL"] = each.origin
        yield {bilibili: first, weibo: second, xiaohongshu: third}


async def add_canaries(terminal: Terminal) -> list[str]:
    """Three cookies of each platform, so that three questions can be asked at once; returns what the commands said."""
    said = []
    for platform, cookie in COOKIES.items():
        for number in range(3):
            words = ("cookies", "add", f"{platform}-{number}", "--platform", platform, "--daily-limit", MANY)
            ended = await terminal.pipe(*words, given=cookie)
            assert ended.code == 0, ended
            said += [ended.out, ended.err]
    return said


async def misuse(heard: Heard) -> None:
    """Callers who send the cookie where none belongs."""
    search = {"platform": "weibo", "keyword": "生活"}
    header = COOKIES["weibo"]
    await heard.ask("/crawler/search", {**search, "cookie": header})
    await heard.ask("/crawler/search", {**search, "platform": header})
    await heard.ask("/crawler/search", {**search, header: 1})
    await heard.ask("/crawler/search", {**search, "page": header})
    await heard.ask(f"/crawler/search?cookie={quote(header, safe='')}", search)
    await heard.ask(f"/crawler/{quote(header, safe='')}", search)
    await heard.ask("/crawler/search", search, headers={"Cookie": header})
    await heard.ask("/crawler/search", search, headers={"Authorization": "Bearer " + quote(CANARY, safe="")})
    await heard.ask("/crawler/detail", {"platform": "weibo", "note_id": header})
    await heard.ask("/crawler/detail", {"platform": "web", "url": f"http://127.0.0.1:9/?{quote(header, safe='')}"})


async def suffer(heard: Heard, platforms: dict[Any, SandboxMedia]) -> None:
    """Everything that can go wrong, at each platform."""
    for module, platform in platforms.items():
        await heard.ask_everything(platform.name, NOTES[platform.name])
        for fault in list_faults(module):
            platform.misbehave(fault)
            await heard.ask_everything(platform.name, NOTES[platform.name])
            platform.recover()
    forms = 2 * len(spell(CANARY))
    for number in range(forms):
        items = [{"note_id": f"{deed}-{number}"} for deed in ("raise", "refuse", "return")]
        for item in items:
            await heard.ask("/crawler/detail", {"platform": "rogue", **item})
        await heard.ask("/crawler/detail/batch", {"platform": "rogue", "items": items})
        await heard.ask("/crawler/search", {"platform": "rogue", "keyword": "x", "page": number + 1})


async def spoil(terminal: Terminal, heard: Heard) -> None:
    """Cookies that can no longer be decrypted."""
    database = open_database(f"sqlite:///{terminal.data_dir / 'tidings.db'}")
    async with database.write() as connection:
        await connection.execute(text("UPDATE tbl_cookie SET cookie_encrypted = randomblob(80)"))
    await database.close()
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while await heard.ask("/crawler/search", {"platform": "weibo", "keyword": "生活"}) != "COOKIE_EXHAUSTED":
            pass


def read_files(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


ALL_CODES = {
    *("OK", "COOKIE_EXHAUSTED", "COOKIE_INVALID", "PLATFORM_ERROR", "TIMEOUT_ERROR", "NETWORK_ERROR", "PARTIAL_FAIL"),
    *("INVALID_INPUT", "UNAUTHORIZED", "NOT_FOUND", "INTERNAL_ERROR"),
}


async def test_a_canary_that_goes_every_way_leaves_no_trace(terminal: Terminal, http: ClientSession) -> None:
    """C7, C23: every path, every error and every traceback of a real process; its answers, log and database files."""
    # A captcha rests a cookie at once; here it is back at once, or the other ways would be gone without it.
    terminal.variables |= {"COOLING_DURATION_MINUTES": "0", "MAX_CONSECUTIVE_ERRORS": "1000"}
    terminal.variables |= {"MAX_TOTAL_ERRORS": "1000"}
    terminal.variables |= {"SEARCH_TIMEOUT": "2", "DETAIL_TIMEOUT": "2", "BATCH_TIMEOUT": "2"}
    async with open_platforms(terminal) as platforms:
        said = await add_canaries(terminal)
        served = await Server(terminal, http).start()
        heard = Heard(served, http)
        await misuse(heard)
        await suffer(heard, platforms)
        while_running = await asyncio.to_thread(read_files, terminal.data_dir)
        for words in (("cookies", "list", "--json"), ("keys", "rotate"), ("keys", "status")):
            ended = await terminal.run(*words)
            said += [ended.out, ended.err]
        await spoil(terminal, heard)
        await served.end()
    after = await asyncio.to_thread(read_files, terminal.data_dir)
    assert heard.leaks == []
    assert heard.codes.keys() >= ALL_CODES, heard.codes
    assert "Traceback" in terminal.log
    assert "cookie.unreadable" in terminal.log
    assert b"SQLite format 3" in after
    assert [find_traces(part, CANARY) for part in ("\n".join(said + heard.answers), while_running, after)] == [
        set()
    ] * 3
    planted = after + base64.b64encode(COOKIES["weibo"].encode())
    assert find_traces(planted, CANARY)
