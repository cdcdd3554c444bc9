"""The form of a site's settings: every field of its document, secrets that are never shown, rules in both languages."""

import html
import re
from pathlib import Path

import pytest

from tests.web.api_stage import BING_KEY, ApiStage, open_api
from tests.web.pages.browser import Browser
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.site.document import describe_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, make_site
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.web.pages.site.fields import CLEAR, FIELDS, SECRETS, FieldKind, read_changes, show_document
from tidings.web.pages.view.forms import FormValues

pytestmark = pytest.mark.one_database
HOOK = "a-hook-secret-0123456789"


def make() -> Site:
    return make_site(sitemap_urls=["https://example.com/sitemap.xml"], key="0123456789abcdef")


def fill(site: Site, **typed: str) -> dict[str, str]:
    """The form as a browser sends it: every field, but boxes only where they are ticked."""
    shown = show_document(describe_site(site))
    switches = {field.name for field in FIELDS if field.kind is FieldKind.SWITCH}
    sent = {name: value for name, value in shown.items() if value or name not in switches}
    return {**sent, **typed}


async def find(api: ApiStage) -> Site:
    [site] = await api.installation.sites.list_all()
    return site


async def save(api: ApiStage, browser: Browser, **typed: str) -> int:
    site = await find(api)
    page = f"/sites/{site.id.replace(':', '%3A')}/settings"
    await browser.get(page)
    return (await browser.post(page, **fill(site, **typed))).status


def test_the_form_has_every_setting_of_a_site() -> None:
    """A2, A3, A42, A43, A46: what the API takes, the form takes. The id and the host name the site itself."""
    others = {"id", "host", "sitemapUrl"}
    assert {field.name for field in FIELDS} == set(describe_site(make())) - others


async def test_saving_the_form_unchanged_changes_nothing(api: ApiStage, browser: Browser) -> None:
    """A2: also several sitemaps, backups and secrets stay."""
    await api.add_site(
        sitemapUrls=[api.web.sitemap_url, f"{api.web.origin}/en.xml"],
        backupSitemapUrls=[f"{api.web.origin}/backup.xml"],
        bingEnabled=True,
        bingApiKey=BING_KEY,
        bingDailyQuota="auto",
        hookSecret=HOOK,
        group="shops",
        pageCheck="sample",
    )
    before = await find(api)
    assert await save(api, browser) == 303
    assert await find(api) == before


async def test_what_is_typed_is_stored(api: ApiStage, browser: Browser) -> None:
    """A42, A46, A34: channels, page check, group, hook and method are set by the form."""
    await api.add_site()
    typed = {
        "group": "shops",
        "hookSecret": HOOK,
        "pageCheck": "all",
        "pageCheckLimit": "25",
        "submitMethod": "get",
        "baiduEnabled": "on",
        "baiduToken": "a-baidu-token",
        "baiduPriority": "random",
        "backupSitemapUrls": "https://example.com/b.xml\r\nhttps://example.com/c.xml",
    }
    assert await save(api, browser, **typed) == 303
    document = describe_site(await find(api))
    assert document["backupSitemapUrls"] == ["https://example.com/b.xml", "https://example.com/c.xml"]
    shown = {name: document[name] for name in ("group", "pageCheck", "pageCheckLimit", "submitMethod", "baiduPriority")}
    assert list(shown.values()) == ["shops", "all", 25, "get", "random"]
    site = await find(api)
    assert site.hook_secret is not None
    assert site.hook_secret.reveal() == HOOK
    assert site.baidu.enabled


async def test_a_secret_is_kept_cleared_and_never_shown(api: ApiStage, browser: Browser) -> None:
    """A4: an empty field keeps it; a box deletes it; the page says only that there is one."""
    await api.add_site(hookSecret=HOOK)
    assert await save(api, browser) == 303
    assert (await find(api)).hook_secret is not None
    page = (await browser.get(f"/sites/{(await find(api)).id.replace(':', '%3A')}/settings")).text
    assert HOOK not in page
    assert "leave empty to keep it" in page
    assert await save(api, browser, **{f"{CLEAR}hookSecret": "on"}) == 303
    assert (await find(api)).hook_secret is None


@pytest.mark.parametrize(
    ("field", "value", "english", "chinese"),
    [
        ("schedule", "0 25 * * *", "It must be a cron expression", "应为 cron 表达式"),
        ("sitemapUrls", "", "At least one sitemap is needed", "至少需要一个站点地图"),
        ("sitemapUrls", "ftp://example.com/", "Only http:// and https:// URLs", "只支持 http:// 和 https:// 网址"),
        ("pageCheckLimit", "0", "It must be a whole number from 1 to 10,000", "应为 1 到 10,000 的整数"),
        ("pageCheck", "often", "It must be one of off, sample, all", "应为以下之一：off, sample, all"),
        ("bingDailyQuota", "many", "It must be a whole number", "应为整数"),
        ("group", "two words", "It must have 1 to 64 characters", "应为 1 到 64 个字符"),
        ("hookSecret", "short", "It must have 16 to 256 printable", "应为 16 到 256 个可打印的"),
        (
            "keyLocation",
            "https://other.example/k.txt",
            "The key file must be on the site's",
            "密钥文件必须在该站点的主机",
        ),
        ("baiduEnabled", "on", "baiduToken is required when baiduEnabled", "必须填写 baiduToken"),
    ],
)
async def test_a_broken_rule_is_said_at_its_field_in_both_languages(
    api: ApiStage, browser: Browser, field: str, value: str, english: str, chinese: str
) -> None:
    await api.add_site()
    before = await find(api)
    page = f"/sites/{before.id.replace(':', '%3A')}/settings"
    for language, said in (("en", english), ("zh", chinese)):
        browser.cookies["language"] = language
        answer = await browser.post(page, **fill(before, **{field: value}))
        text = html.unescape(answer.text)
        assert answer.status == 400
        assert said in text
        named = re.findall(r'<a href="#field-(\w+)">', text)
        assert f'id="field-{named[0]}"' in text
    assert await find(api) == before


def test_a_form_without_a_secret_leaves_it_out() -> None:
    assert SECRETS & set(read_changes(FormValues({}))) == set()
    with pytest.raises(SiteError):
        read_changes(FormValues({"submitMethod": ["carrier pigeon"]}))


@pytest.mark.thorough
async def test_the_site_shows_what_google_says_of_its_sitemap(sqlite_url: str, tmp_path: Path) -> None:
    """A43: when it was submitted and downloaded, with UTC on hover, and how many errors Google found."""
    async with SandboxGoogle() as google, open_api(sqlite_url, tmp_path, bases=ApiBases(google=google.address)) as api:
        google.add_property(f"{api.web.origin}/")
        google.findings[api.web.sitemap_url] = {"warnings": "2", "errors": "1", "isPending": False}
        site = (await api.add_site(googleCredentials=google.credentials))["id"]
        await api.run(site=site)
        browser = Browser(api)
        await browser.sign_in()
        page = (await browser.get(f"/sites/{site.replace(':', '%3A')}")).text
        assert re.search(r"Submitted <time datetime=[^>]* UTC\">[\d:]+</time>, downloaded <time", page)
        assert "Warnings: 2. Errors: 1." in page
        assert "&lt;time" not in page
