"""Which platforms there are: built in, and from packages that are really installed."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.collect.platform_stage import make_tools, refer_to
from tidings.collect.crawl.platforms.protocol import NoteReference, Platform
from tidings.collect.crawl.platforms.registry import PlatformRegistry
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.net.client import GuardedClient
from tidings.sandbox.media.openweb import SandboxOpenWeb

ROOT = Path(__file__).parents[2]
BUILT_IN = ("bilibili", "weibo", "xiaohongshu", "web")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the documentation, word for word, installed by pip into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    text = (ROOT / "docs" / "platforms.md").read_text()
    for name, content in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL):
        (source / name).write_text(content)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return target


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Puts a folder of packages in reach, and afterwards forgets the modules that came from it."""
    before = set(sys.modules)
    yield lambda folder: monkeypatch.syspath_prepend(folder)
    for name in set(sys.modules) - before:
        if name.startswith("tidings_"):
            del sys.modules[name]


def offer(folder: Path, package: str, *, name: str, code: str) -> None:
    """A package as an installer leaves it: a module, and metadata that names its entry point."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[tidings.platforms]\n{name} = {module}:Offered\n")


def make_platforms(client: GuardedClient, base_url: str | None = None) -> PlatformRegistry:
    return PlatformRegistry(lambda name: make_tools(client, base_url))


WHOLE = """
class Offered:
    name = "NAME"
    needs_cookie = False
    def __init__(self, tools): pass
    async def search(self, keyword, *, page, cookie): ...
    async def detail(self, reference, *, cookie): ...
"""


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_built_in_platform_is_one(client: GuardedClient, name: str) -> None:
    """C17: one small interface; only the open web needs no cookie."""
    platforms = make_platforms(client)
    platform = platforms.get(name)
    assert isinstance(platform, Platform)
    assert (platform.name, platform.needs_cookie) == (name, name != "web")
    assert platforms.get(name) is platform
    assert set(BUILT_IN) <= set(platforms.names)


@pytest.mark.thorough
async def test_the_package_of_the_documentation_works_as_installed(
    client: GuardedClient, installed: Path, on_path: Callable[[Path], None]
) -> None:
    """C17: a platform in a package of one's own, found by its entry point; the example in the docs is the test."""
    on_path(installed)
    async with SandboxOpenWeb() as site:
        found = '{"topics":[{"id":7,"title":"Coffee &amp; tea"},{"id":8}],"more":true}'
        topic = '{"title":"Coffee","body":"<p>Hot</p>","author":"Ada","created":"2026-09-22","likes":"1.2k"}'
        site.serve("/search.json", found, content_type="application/json")
        site.serve("/topics/7.json", topic, content_type="application/json")
        platforms = make_platforms(client, site.origin)
        assert "forum" in platforms.names
        forum = platforms.get("forum")
        page = await forum.search("a & b", page=2, cookie=None)
        assert [(hit.platform, hit.note_id, hit.title) for hit in page.hits] == [
            ("forum", "7", "Coffee & tea"),
            ("forum", "8", ""),
        ]
        assert (page.page, page.has_more, site.requests[0].query) == (2, True, "q=a%20%26%20b&page=2")
        note = await forum.detail(refer_to(page.hits[0]), cookie=None)
        assert (note.title, note.text, note.author.name, note.counts.likes) == ("Coffee", "Hot", "Ada", 1_200)
        assert note.published_at == datetime(2026, 9, 22, tzinfo=UTC)
        with pytest.raises(CrawlError) as gone:
            await forum.detail(refer_to(page.hits[1]), cookie=None)
        assert gone.value.code == ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("status", [200, 401, 403])
async def test_a_platform_without_cookies_never_blames_one(
    client: GuardedClient, installed: Path, on_path: Callable[[Path], None], status: int
) -> None:
    """C15: an empty body or a 403 is the platform's own there."""
    on_path(installed)
    async with SandboxOpenWeb() as site:
        site.serve("/topics/7.json", "", status=status)
        with pytest.raises(CrawlError) as raised:
            await make_platforms(client, site.origin).get("forum").detail(NoteReference(note_id="7"), cookie=None)
    assert (raised.value.code, raised.value.blames_cookie) == (ErrorCode.PLATFORM_ERROR, False)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('secret detail')", "it cannot be loaded (RuntimeError)"),
        ("import no_such_module_at_all", "it cannot be loaded (ModuleNotFoundError)"),
        ("Offered = 3", "it cannot be loaded (TypeError)"),
        ("class Offered:\n    def __init__(self, tools): pass", "it lacks name, needs_cookie, search or detail"),
        (WHOLE.replace("NAME", "other"), "its name differs from its entry point"),
    ],
)
def test_a_package_that_does_not_work_is_refused_by_name_and_harms_no_other(
    client: GuardedClient, tmp_path: Path, on_path: Callable[[Path], None], code: str, reason: str
) -> None:
    """C15, C17: code that is not ours may do anything; the message says which package to install anew. The question was
    right, so it is not INVALID_INPUT, which would give a candidate up for good."""
    offer(tmp_path, "tidings-broken", name="broken", code=code)
    on_path(tmp_path)
    platforms = make_platforms(client)
    with pytest.raises(CrawlError) as raised:
        platforms.get("broken")
    assert raised.value.code == ErrorCode.PLATFORM_ERROR
    remedy = "try pip install --upgrade tidings-broken"
    assert raised.value.message == f"platform broken of package tidings-broken: {reason}; {remedy}"
    assert platforms.get("weibo").name == "weibo"


def test_a_platform_that_says_itself_what_it_lacks_is_taken_at_its_word(
    client: GuardedClient, tmp_path: Path, on_path: Callable[[Path], None]
) -> None:
    """C17: as Xiaohongshu does."""
    code = (
        "from tidings.collect.errors import CrawlError, ErrorCode\n"
        "def Offered(tools): raise CrawlError(ErrorCode.PLATFORM_ERROR, 'pip install signer')"
    )
    offer(tmp_path, "tidings-honest", name="honest", code=code)
    on_path(tmp_path)
    with pytest.raises(CrawlError) as raised:
        make_platforms(client).get("honest")
    assert (raised.value.code, raised.value.message) == (ErrorCode.PLATFORM_ERROR, "pip install signer")


@pytest.mark.parametrize("name", ["weibo", "Bad Name", "x" * 40])
def test_a_name_that_is_taken_or_odd_is_not_given_away(
    client: GuardedClient, tmp_path: Path, on_path: Callable[[Path], None], name: str
) -> None:
    """C7: whoever answered to the name of a built-in platform would be given its cookies."""
    offer(tmp_path, "tidings-greedy", name=name, code=WHOLE.replace("NAME", name))
    on_path(tmp_path)
    platforms = make_platforms(client)
    assert platforms.names == BUILT_IN
    assert type(platforms.get("weibo")).__module__ == "tidings.collect.crawl.platforms.weibo"


def test_of_two_packages_with_one_name_only_the_first_has_it(
    client: GuardedClient, tmp_path: Path, on_path: Callable[[Path], None]
) -> None:
    """C7: a second one cannot take a name over."""
    for folder in ("later", "first"):
        (tmp_path / folder).mkdir()
        offer(tmp_path / folder, f"tidings-{folder}", name="mine", code=WHOLE.replace("NAME", "mine"))
        on_path(tmp_path / folder)
    assert type(make_platforms(client).get("mine")).__module__ == "tidings_first"


@pytest.mark.parametrize("name", ["", "nowhere", "../weibo", "tidings.platforms"])
def test_an_unknown_platform_is_refused_with_the_list_of_those_there_are(client: GuardedClient, name: str) -> None:
    """C15: INVALID_INPUT."""
    with pytest.raises(CrawlError) as raised:
        make_platforms(client).get(name)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert "bilibili, weibo, xiaohongshu, web" in raised.value.message


def test_loading_the_registry_loads_no_library_of_a_single_platform() -> None:
    """C17: other commands stay light."""
    code = (
        "import sys, tidings.collect.crawl.platforms.open_web.web, tidings.collect.crawl.platforms.xiaohongshu;"
        "print([name for name in ('feedparser','trafilatura','protego','xhshow','lxml') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[]"
