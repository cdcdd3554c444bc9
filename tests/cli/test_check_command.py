"""`tidings check`: the key file and the sitemap as an engine would see them, before anything is sent."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, make_sandbox
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite


async def test_good_site_is_checked_by_address_and_by_name_and_nothing_is_sent(terminal: Terminal) -> None:
    """A4, A25: exit 0, one line for the key file and one for the sitemap, and the key is not shown."""
    async with make_sandbox() as sandbox:
        site, engine = sandbox.site, sandbox.engines[0]
        by_address = await terminal.run("check", site.sitemap_url, "--key", site.key)
        added = await terminal.run(
            "sites", "add", site.sitemap_url, "--key", site.key, "--engine", engine.endpoint, "--id", "mine"
        )
        by_name = await terminal.run("check", "mine", "--json")
        assert (by_address.code, by_address.err, added.code) == (0, "", 0)
        assert [line.split(":")[0] for line in by_address.out.splitlines()] == ["good key file", "good sitemap"]
        assert (by_name.code, by_name.err, by_name.document["site"]) == (0, "", "mine")
        assert [(each["subject"], each["good"]) for each in by_name.document["findings"]] == [
            ("key file", True),
            ("sitemap", True),
        ]
        assert not engine.requests
        assert site.key not in by_address.out + by_name.out + terminal.log


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param("not here", 404, "is missing (HTTP 404)", id="missing"),
        pytest.param("<!doctype html><title>Welcome</title>", 200, "is an HTML page, not the key", id="page"),
        pytest.param("another-key-entirely", 200, "holds another key", id="another"),
    ],
)
async def test_wrong_key_file_ends_with_1_and_says_what_to_do(
    terminal: Terminal, body: str, status: int, words: str
) -> None:
    """A25: what an engine would refuse is named, with advice; the sitemap is looked at all the same."""
    async with make_sandbox() as sandbox:
        site = sandbox.site
        site.serve(f"/{site.key}.txt", body, status=status)
        ended = await terminal.run("check", site.sitemap_url, "--key", site.key)
        first, advice, second = ended.out.splitlines()
        assert (ended.code, ended.err) == (1, "")
        assert first.startswith("wrong key file: ")
        assert first.endswith(words)
        assert advice.strip()
        assert second.startswith("good sitemap: ")
        assert site.key not in ended.out


async def test_sitemap_that_is_of_no_use_ends_with_1(terminal: Terminal) -> None:
    """A7, A25: one that cannot be fetched, and one that lists another host's pages."""
    foreign = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>https://other.example/</loc></url></urlset>"
    async with make_sandbox() as sandbox:
        site = sandbox.site
        words = ["check", "--key", site.key, "--json"]
        site.serve("/foreign.xml", foreign)
        missing, another = await asyncio.gather(
            terminal.run(*words, f"{site.origin}/missing.xml"), terminal.run(*words, f"{site.origin}/foreign.xml")
        )
        assert (missing.code, another.code) == (1, 1)
        assert "404" in missing.document["findings"][1]["message"]
        assert another.document["findings"][1]["message"] == f"none of its URLs is of {site.host}"


async def test_unknown_site_ends_with_2_and_one_line(terminal: Terminal) -> None:
    """A25: a name that is not stored is bad input."""
    ended = await terminal.run("check", "nobody")
    assert ended.code == 2
    assert ended.complaint == "tidings: there is no site 'nobody'; `tidings sites list` shows the sites"
    bare = await terminal.run("check", "example.com/sitemap.xml", "--key", "0123456789abcdef")
    assert (bare.code, "is no URL: a sitemap's begins with https://" in bare.complaint) == (2, True)


@pytest.mark.thorough
async def test_google_is_asked_about_the_sitemap_and_reported_of_it(terminal: Terminal, tmp_path: Path) -> None:
    """A43: credentials from a file; check, run, status and forget know the channel, and show no key."""
    google, site = SandboxGoogle(), SandboxSite(pages=3)
    async with Sandbox(site=site, engines=[SandboxEngine("alpha")], others=[google]) as sandbox:
        google.add_property(f"{site.origin}/")
        (file := tmp_path / "account.json").write_text(google.credentials)
        variables = {"GOOGLE_API_BASE": google.address}
        words = ["sites", "add", site.sitemap_url, "--key", site.key, "--engine", sandbox.engines[0].endpoint]
        added = await terminal.run(*words, "--id", "mine", "--google-credentials", str(file), **variables)
        before = await terminal.run("check", "mine", "--json", **variables)
        run = await terminal.run("run", "mine", "--channel", "google", **variables)
        google.findings[site.sitemap_url] = {"warnings": "2", "errors": "1"}
        after = await terminal.run("check", "mine", **variables)
        again = await terminal.run("run", "mine", "--channel", "google", **variables)
        shown = await terminal.run("status", "mine", **variables)
        document = (await terminal.run("status", "mine", "--json", **variables)).document
        forgot = await terminal.run(
            "ledger", "forget", "mine", "--since", "2020-01-01", "--channel", "google", **variables
        )
        assert [added.code, run.code, again.code, forgot.code] == [0, 0, 0, 0]
        assert (before.code, after.code) == (0, 1)
        assert f"Submitted {site.sitemap_url} to Google" in " ".join(run.out.split())
        assert f"Google has {site.sitemap_url} already" in " ".join(again.out.split())
        assert "does not know" in before.document["findings"][-1]["message"]
        assert "2 warnings, 1 errors" in after.out
        assert list(google.sitemaps) == [(f"{site.origin}/", site.sitemap_url)]
        assert not sandbox.engines[0].requests
        assert "2 warnings, 1 errors" in " ".join(shown.out.split())
        [reported] = document["googleSitemaps"]
        assert (reported["sitemapUrl"], reported["warnings"], reported["errors"]) == (site.sitemap_url, 2, 1)
        assert reported["lastDownloaded"]
        private = google.credentials.partition("PRIVATE KEY-----")[2][10:40]
        assert private not in terminal.log + added.out + before.out + after.out + shown.out
