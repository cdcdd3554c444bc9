"""The first site: four steps on one page, from a sitemap's address to the first accepted page."""

import re

import pytest

from tests.web.api_stage import BING_KEY, ApiStage
from tests.web.pages.browser import Browser

pytestmark = pytest.mark.one_database


@pytest.mark.thorough
async def test_the_first_site_goes_from_nothing_to_accepted_pages(api: ApiStage, browser: Browser) -> None:
    """A new person needs a sitemap's address and one file on the server, and no documentation."""
    given = await browser.get(f"/sites/new?sitemap={api.web.sitemap_url}")
    step = await browser.get(given.headers["location"])
    assert f"It lists pages of {api.web.host}" in step.text
    missing = await browser.get(f"/sites/new?sitemap={api.web.sitemap_url}&key=another-key-0123456789&check=true")
    assert "The file is not there yet" in missing.text
    # The person has to see and to open the very address.
    assert f"{api.web.origin}/another-key-0123456789.txt is missing (HTTP 404)" in missing.text
    found = await browser.get(f"/sites/new?sitemap={api.web.sitemap_url}&key={api.web.key}&check=true")
    assert "The key file is in place" in found.text
    added = await browser.post("/sites/new", sitemap=api.web.sitemap_url, key=api.web.key, schedule="30 6 * * *")
    assert added.status == 303
    dry_run = await browser.get(added.headers["location"])
    assert "20 pages would be sent now" in dry_run.text
    assert api.engine.requests == []
    started = await browser.post(added.headers["location"].replace("/dry-run", "/run"), channel="all")
    assert started.status == 303
    [site] = (await api.read("/api/sites"))["sites"]
    [execution] = (await api.read(f"/api/sites/{site['id']}/executions"))["executions"]
    ended = await api.wait_for_end(site["id"], execution["executionId"])
    assert ended["result"]["submitted"] == 20


async def test_the_proposed_key_stays_when_the_page_is_loaded_again(api: ApiStage, browser: Browser) -> None:
    """Its file may be on the server by then; a new one would make it useless."""
    given = await browser.get(f"/sites/new?sitemap={api.web.sitemap_url}")
    assert given.status == 303
    where = given.headers["location"]
    key = re.findall("key=([0-9a-f]{32})", where)[0]
    pages = [(await browser.get(where)).text for _ in range(2)]
    assert [f">{key}.txt</code>" in page for page in pages] == [True, True]


async def test_a_key_of_ones_own_is_taken_or_refused_at_its_field(api: ApiStage, browser: Browser) -> None:
    """Who announces by IndexNow already has a key, and its file."""
    step = f"/sites/new?sitemap={api.web.sitemap_url}"
    taken = await browser.get(f"{step}&key=my-own-key-2020")
    assert ">my-own-key-2020.txt</code>" in taken.text
    refused = await browser.get(f"{step}&key=short")
    assert refused.status == 400
    assert re.search('id="field-key"[^>]*value="short"[^>]*aria-invalid="true"', refused.text)
    assert ">short.txt</code>" not in refused.text


@pytest.mark.parametrize("sitemap", ["example", "{origin}/nothing.xml"])
async def test_what_is_wrong_with_the_sitemap_stands_at_its_field(
    api: ApiStage, browser: Browser, sitemap: str
) -> None:
    """Whether the address is wrong or the file behind it; what was typed stays."""
    typed = sitemap.format(origin=api.web.origin)
    page = (await browser.get(f"/sites/new?sitemap={typed}")).text
    assert re.search(f'id="field-sitemap"[^>]*value="{re.escape(typed)}"[^>]*aria-invalid="true"', page)
    assert 'class="problem" id="hint-sitemap"' in page


async def test_a_key_that_was_typed_is_not_said_to_be_kept(api: ApiStage, browser: Browser) -> None:
    """What is wrong is another field; the key is typed again, and the key file stays checked."""
    typed = {"sitemap": api.web.sitemap_url, "key": api.web.key, "schedule": "never"}
    with_key = await browser.post("/sites/new", **typed, bingApiKey=BING_KEY, has_key_file="1")
    assert "but no key or cookie: enter those again" in with_key.text
    assert "The key file is in place" in with_key.text
    assert BING_KEY not in with_key.text
    without = await browser.post("/sites/new", **typed)
    assert "What you typed is kept below." in without.text
    assert "Skipped. Check it later" in without.text
