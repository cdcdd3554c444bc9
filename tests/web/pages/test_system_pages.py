"""Pages about the installation: executions whose figures agree, the API in both languages, settings by group."""

import html
import re
from pathlib import Path

import pytest

from tests.web.api_stage import BING_KEY, ApiStage
from tests.web.pages.browser import Browser
from tidings.core.alerts.translation import read_catalogue
from tidings.sandbox.wire.faults import Fault
from tidings.settings.settings import read_settings
from tidings.web.description import list_operations
from tidings.web.pages.system import find_setting_group
from tidings.web.pages.view.texts import OPERATIONS


def read_rows(text: str) -> list[list[str]]:
    """The rows of a page's tables of executions, cell by cell."""
    rows = re.findall(r"<tr role=\"row\">(.*?)</tr>", text, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells if row]


@pytest.mark.thorough
async def test_the_figures_of_a_row_add_up_and_trouble_has_its_reason(api: ApiStage, browser: Browser) -> None:
    """A37: more accepted than due says which; a partial execution shows what failed and why, in every list."""
    api.engine.misbehave(Fault(status=422, body="not welcome", matching=api.web.url(3)))
    site = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY, bingDailyQuota=5))["id"]
    await api.run(site=site)
    api.engine.recover()
    await api.ask("PUT", f"/api/sites/{site}", {"bingDailyQuota": 12})
    await api.run(site=site)
    page = f"/sites/{site.replace(':', '%3A')}"
    shown = await browser.get(f"{page}/executions")
    [second, first] = read_rows(shown.text)
    assert first[3:] == ["20", "19", "1"]
    assert "1 of 20 URLs failed: HTTP 422: not welcome" in first[0]
    # The page that nobody took is due again. Bing may take it too: it counts once, as a repeat.
    assert (second[0], second[3], second[5]) == ("Succeeded", "1", "0")
    found = re.fullmatch(r"(\d+) incl. 1 sent again, (\d+) only by Bing", second[4])
    assert found, second
    assert int(found[1]) == 1 + int(found[2])
    everywhere = await browser.get("/executions")
    assert [row[5] for row in read_rows(everywhere.text)] == ["0", "1"]
    assert "1 of 20 URLs failed" in everywhere.text
    troubled = await browser.get("/executions?of=trouble")
    assert len(read_rows(troubled.text)) == 1
    assert read_rows((await browser.get("/executions?of=collect")).text) == []


@pytest.mark.thorough
async def test_the_page_of_the_api_lists_every_operation(api: ApiStage, browser: Browser) -> None:
    """Interfaces: /docs opens in a browser that has signed in."""
    page = (await browser.get("/docs")).text.replace("<wbr>", "")
    document = await api.read("/openapi.json")
    listed = re.findall(r'<code class="method">([A-Z]+)</code><code>(/[^<]*)</code>', page)
    operations = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert sorted(listed) == sorted(operations)
    assert len(re.findall('<h2 id="group-', page)) == len(
        {tag for each in list_operations(document) for tag in each[2]["tags"]}
    )


async def test_the_page_of_the_api_is_chinese_where_the_person_is(api: ApiStage, browser: Browser) -> None:
    """Every operation's summary has its Chinese text, the catalogue has no other, and the page shows them."""
    summaries = {operation["summary"] for _, _, operation in list_operations(await api.read("/openapi.json"))}
    catalogue = read_catalogue(OPERATIONS)
    assert set(catalogue) == summaries
    browser.cookies["language"] = "zh"
    page = html.unescape((await browser.get("/docs")).text)
    assert [text for text in catalogue.values() if text not in page] == []
    assert [text for text in summaries if f">{text}<" in page] == []


def test_settings_are_grouped_as_their_document_is() -> None:
    """A person who reads docs/settings.md finds a variable under the same heading on the page."""
    headings = {
        "Storage and service": "service",
        "Alerts": "alerts",
        "The environment's site": "site",
        "Sending": "sending",
        "Crawl API": "crawl",
        "Collect": "collect",
        "Feishu mirror": "feishu",
    }
    document = Path("docs/settings.md").read_text(encoding="utf-8")
    listed = {
        name: headings[heading]
        for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", document, re.MULTILINE | re.DOTALL)
        if heading in headings
        for cell in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
        for name in re.findall(r"`([A-Z_]+)`", cell)
    }
    assert len(listed) > 70
    assert {name: find_setting_group(name) for name in listed} == listed


@pytest.mark.thorough
async def test_settings_show_their_source_and_no_secret(api: ApiStage, browser: Browser) -> None:
    settings = read_settings({"TIDINGS_PORT": "9090", "COOKIE_MASTER_KEY": "k1:" + "A" * 43 + "="})
    by_name = {source.name: source for source in settings.sources}
    assert (by_name["TIDINGS_PORT"].value, by_name["TIDINGS_PORT"].source) == ("9090", "environment")
    assert (by_name["TIDINGS_HOST"].value, by_name["TIDINGS_HOST"].source) == ("127.0.0.1", "default")
    assert (by_name["CACHE_TTL_DAYS"].value, by_name["SITEMAP_URL"].value) == ("30", None)
    assert by_name["COOKIE_MASTER_KEY"].secret
    assert by_name["COOKIE_MASTER_KEY"].value is None
    assert (await browser.get("/settings")).status == 200
