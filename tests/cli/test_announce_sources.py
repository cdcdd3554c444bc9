"""`tidings announce` without a sitemap of the network: named pages, a list, a local file, only what changed lately."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.cli.terminal import Terminal, count_each_once, make_sandbox
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.wire.faults import Fault

KEY = "an-indexnow-key-of-good-form"


def list_words(sandbox: Sandbox, *words: str) -> list[str]:
    return ["announce", *words, "--key", sandbox.site.key, "--engine", sandbox.engines[0].endpoint]


def list_fetched(sandbox: Sandbox) -> list[str]:
    """Paths that somebody fetched from the site; the engine itself looks at the key file."""
    return sorted({urlsplit(url).path for request in sandbox.site.requests for url in request.urls})


def flatten(text: str) -> str:
    """Output that a narrow terminal wrapped, as one line."""
    return " ".join(text.split())


def write_sitemap(path: Path, urls: list[str], *, ages: list[int] | None = None) -> None:
    """A sitemap whose pages changed so many hours ago."""
    now = datetime.now(UTC)
    dates = [f"<lastmod>{now - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}</lastmod>" for hours in ages or []]
    rows = [f"<url><loc>{url}</loc>{date}</url>" for url, date in zip(urls, dates or [""] * len(urls), strict=True)]
    path.write_text(f"<urlset>{''.join(rows)}</urlset>")


async def test_named_pages_are_sent_without_a_sitemap(terminal: Terminal) -> None:
    """A2: --url, a file and standard input together reach the engine; comments and empty lines are no pages."""
    async with make_sandbox(pages=5) as sandbox:
        one, two, three, four, five = sandbox.site.urls()
        (terminal.folder / "changed.txt").write_text(f"# of this deploy\n\n{three}\n{one}\n")
        first = await terminal.run(*list_words(sandbox, "--url", one, "--url", two, "--urls-from", "changed.txt"))
        second = await terminal.pipe(*list_words(sandbox, "--urls-from", "-", "--json"), given=f"{four}\r\n{five}\n")
        assert (first.code, second.code) == (0, 0)
        assert second.document["submitted"] == 2
        assert dict(sandbox.engines[0].accepted) == count_each_once(sandbox)
        assert list_fetched(sandbox) == [f"/{sandbox.site.key}.txt"]


async def test_a_named_page_that_is_not_sent_is_said_and_ends_with_1(terminal: Terminal) -> None:
    """A7, A12, A37: within the gap, of another host, or no URL at all. The words name the reason; the rest is sent."""
    async with make_sandbox(pages=2) as sandbox:
        one, two = sandbox.site.urls()
        terminal.variables["TIDINGS_RESUBMIT_GAP_SECONDS"] = "600"
        sent = await terminal.run(*list_words(sandbox, "--url", one))
        soon = await terminal.run(*list_words(sandbox, "--url", one, "--url", two))
        foreign = await terminal.run(*list_words(sandbox, "--url", f"{one}?new", "--url", "https://a.example/"))
        wrong = await terminal.run(*list_words(sandbox, "--url", f"{one}?newer", "--url", "/page", "--dry-run"))
        assert (sent.code, soon.code, foreign.code, wrong.code) == (0, 1, 1, 1)
        assert "named URLs that were not sent: 1 announced only minutes ago" in flatten(soon.out)
        assert f"were not sent: 1 of another host than {urlsplit(one).netloc}" in flatten(foreign.out)
        assert "were not sent: 1 not valid" in wrong.err
        assert sorted(sandbox.engines[0].accepted) == [one, f"{one}?new", two]


async def test_a_local_sitemap_is_read_with_the_files_beside_it(terminal: Terminal) -> None:
    """A5, A12: the host comes from its pages; a child of an index that lies beside it is not fetched; no page twice."""
    async with make_sandbox(pages=4) as sandbox:
        urls = list(sandbox.site.urls())
        origin = sandbox.site.sitemap_url.rpartition("/")[0]
        folder = terminal.folder / "dist"
        folder.mkdir()
        write_sitemap(folder / "child.xml", urls)
        index = f"<sitemapindex><sitemap><loc>{origin}/child.xml</loc></sitemap></sitemapindex>"
        (folder / "index.xml").write_text(index)
        first = await terminal.run(*list_words(sandbox, "dist/index.xml"))
        again = await terminal.run(*list_words(sandbox, "dist/child.xml", "--json"))
        assert (first.code, again.code, again.document["new"]) == (0, 0, 0)
        assert dict(sandbox.engines[0].accepted) == count_each_once(sandbox)
        assert list_fetched(sandbox) == [f"/{sandbox.site.key}.txt"]


@pytest.mark.thorough
async def test_since_needs_no_state_and_sends_what_changed_lately(terminal: Terminal) -> None:
    """A12: for a CI that keeps nothing: only pages with a recent lastmod, and no data directory is made."""
    async with make_sandbox(pages=3) as sandbox:
        urls = list(sandbox.site.urls())
        write_sitemap(terminal.folder / "map.xml", urls, ages=[1, 23, 30])
        ended = await terminal.run(*list_words(sandbox, "map.xml", "--since", "1d"))
        assert ended.code == 0
        assert set(sandbox.engines[0].accepted) == set(urls[:2])
        assert "1 of 3 pages were left out: older than" in ended.out
        assert not terminal.data_dir.exists()
        quiet = await terminal.run(*list_words(sandbox, "map.xml", "--since", "30m", "--json"))
        assert (quiet.code, quiet.document["submitted"]) == (0, 0)
        write_sitemap(terminal.folder / "map.xml", urls)
        undated = await terminal.run(*list_words(sandbox, "map.xml", "--since", "1d"))
        assert undated.code == 1
        assert "no page has a lastmod" in undated.out


async def test_since_with_state_does_not_hide_older_pages_from_the_next_execution(terminal: Terminal) -> None:
    """A9, A12: where there is a ledger it is used, and a file that was read in part is read again."""
    async with make_sandbox(pages=3, per_sitemap=3) as sandbox:
        engine = sandbox.engines[0]
        assert (await terminal.run(*list_words(sandbox, "--url", sandbox.site.url(1)))).code == 0
        ended = await terminal.run(*list_words(sandbox, sandbox.site.sitemap_url, "--since", "1m"))
        assert (ended.code, len(engine.accepted)) == (0, 1)
        assert (await terminal.run(*list_words(sandbox, sandbox.site.sitemap_url))).code == 0
        assert dict(engine.accepted) == count_each_once(sandbox)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ([], "name either a sitemap, or pages with --url or --urls-from"),
        (["https://a.example/sitemap.xml", "--url", "https://a.example/1"], "name either a sitemap, or pages"),
        (["--url", "https://a.example/1", "--since", "1d"], "pages that are named count as changed just now"),
        (["https://a.example/s.xml", "--since", "yesterday"], "--since: it must be a number of days"),
        (["--urls-from", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["dist/sitemap.xml"], "dist/sitemap.xml is neither a file here nor a URL such as https://"),
        (["."], ". cannot be read: Is a directory"),
        (["https://a.example/s.xml", "--channel", "baidu"], "is not enabled for this site; it needs baiduToken"),
        (["--url", "news/tea.html"], "is not a URL; a list names one page a line"),
        (["--urls-from", "/dev/null"], "there are no URLs to announce: the list is empty"),
        (["https://a.example/s.xml", "--since", "1d", "--announce-removed"], "needs the whole sitemap"),
        (["https://a.example/s.xml", "--since", "1d", "--channel", "bing"], "would spend the daily quota again"),
        (
            ["https://a.example/s.xml", "--channel", "bing"],
            "Bing submission is not enabled for this site; it needs bingApiKey",
        ),
    ],
)
async def test_words_that_do_not_fit_together_end_with_2(terminal: Terminal, words: list[str], rule: str) -> None:
    """A25: one line names the rule."""
    ended = await terminal.run("announce", *words, "--key", KEY)
    assert ended.code == 2
    assert rule in ended.complaint


async def test_the_key_file_is_written_once_and_never_over_something_else(terminal: Terminal) -> None:
    """A25: `keys file` puts KEY.txt where engines look for it, readable for the web server."""
    folder = terminal.folder / "public"
    missing = await terminal.run("keys", "file", "public", "--key", KEY)
    folder.mkdir()
    first = await terminal.run("keys", "file", "public", "--key", KEY)
    again = await terminal.run("keys", "file", "public", "--json", INDEXNOW_API_KEY=KEY)
    path = folder / f"{KEY}.txt"
    assert (missing.code, missing.complaint) == (2, "tidings: public is not a folder")
    assert (first.code, again.document["written"], path.read_text()) == (0, False, KEY)
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_text("another thing")
    refused = await terminal.run("keys", "file", "public", "--key", KEY)
    assert (refused.code, path.read_text()) == (1, "another thing")
    path.unlink()
    path.symlink_to(terminal.folder / "outside")
    linked = await terminal.run("keys", "file", "public", "--key", KEY)
    assert (linked.code, linked.complaint) == (
        1,
        f"tidings: public/{KEY}.txt cannot be written: No such file or directory",
    )
    assert not (terminal.folder / "outside").exists()
    assert not terminal.data_dir.exists()


@pytest.mark.thorough
async def test_a_dry_run_leaves_a_new_postgresql_empty(terminal: Terminal, postgres_url: str) -> None:
    """A25: no table, no folder; and the list is the same."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    async with make_sandbox(pages=3) as sandbox:
        words = list_words(sandbox, sandbox.site.sitemap_url, "--dry-run", "--json")
        ended = await terminal.run(*words, TIDINGS_DATABASE_URL=postgres_url)
        assert (ended.code, len(ended.document["urls"])) == (0, 3)
        assert not terminal.data_dir.exists()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


async def test_a_dry_run_says_how_many_of_its_pages_wait_from_before(terminal: Terminal) -> None:
    """A12, A13: the list and its count agree."""
    async with make_sandbox(pages=3) as sandbox:
        sandbox.engines[0].misbehave(Fault(status=503))
        assert (await terminal.run(*list_words(sandbox, "--url", sandbox.site.url(1)))).code == 1
        (terminal.folder / "list.txt").write_text(sandbox.site.url(2))
        ended = await terminal.run(*list_words(sandbox, "--urls-from", "list.txt", "--dry-run"))
    assert ended.out.split() == [sandbox.site.url(1), sandbox.site.url(2)]
    assert ended.err == "1 of 1 page is due. Nothing was sent. 1 page waits from before.\n"
