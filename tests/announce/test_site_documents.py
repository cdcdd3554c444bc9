"""A site under the names of the API: what goes in comes out, keys masked; a change leaves everything else as it was."""

import json
from typing import Any

import pytest

from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, make_site

MASK = "****...****"
KEY = "first-key-0123"
OTHER_KEY = "other-key-4567"
BING_KEY = "b1a2c3d4e5f60718293a4b5c6d7e8f90"

ACCOUNT = json.dumps(
    {
        "client_email": "tidings@project.iam.gserviceaccount.com",
        "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
)
MINIMAL = {"sitemapUrl": "https://example.com/sitemap.xml", "indexnowKey": KEY}
DEFAULTS: dict[str, Any] = {
    "id": "example.com",
    "host": "example.com",
    "sitemapUrl": "https://example.com/sitemap.xml",
    "sitemapUrls": ["https://example.com/sitemap.xml"],
    "backupSitemapUrls": [],
    "indexnowKey": MASK,
    "keyLocation": f"https://example.com/{MASK}.txt",
    "searchEngines": ["https://api.indexnow.org/indexnow"],
    "submitMethod": "auto",
    "schedule": "0 0 * * *",
    "announceRemoved": False,
    "enabled": True,
    "group": None,
    "hookSecret": None,
    "pageCheck": "off",
    "pageCheckLimit": 100,
    "bingEnabled": False,
    "bingApiKey": None,
    "bingDailyQuota": 100,
    "bingPriority": "newest",
    "baiduEnabled": False,
    "baiduToken": None,
    "baiduDailyQuota": 10,
    "baiduPriority": "newest",
    "baiduSite": None,
    "googleIndexing": None,
    "googleCredentials": None,
    "googleDailyQuota": 200,
    "googlePriority": "newest",
    "googleProperty": None,
}
# A value for each field that is not its default, and how it is shown.
FULL: dict[str, tuple[Any, Any]] = {
    "sitemapUrls": (["https://example.com/de.xml", "https://example.com/en.xml"],) * 2,
    "backupSitemapUrls": (["https://example.com/backup.xml"],) * 2,
    "indexnowKey": (OTHER_KEY, MASK),
    "keyLocation": ("https://example.com/keys/the-key.txt",) * 2,
    "searchEngines": (
        ["yandex.com", "http://127.0.0.1:8801/indexnow"],
        ["https://yandex.com/indexnow", "http://127.0.0.1:8801/indexnow"],
    ),
    "submitMethod": ("post",) * 2,
    "schedule": ("30 */6 * * 1-5",) * 2,
    "announceRemoved": (True, True),
    "enabled": (False, False),
    "group": ("acme",) * 2,
    "hookSecret": ("a-secret-of-deploy-hooks", MASK),
    "pageCheck": ("sample",) * 2,
    "pageCheckLimit": (7, 7),
    "bingEnabled": (True, True),
    "bingApiKey": (BING_KEY, MASK),
    "bingDailyQuota": (500, 500),
    "bingPriority": ("random",) * 2,
    "baiduEnabled": (True, True),
    "baiduToken": (BING_KEY, MASK),
    "baiduDailyQuota": (3_000, 3_000),
    "baiduPriority": ("random",) * 2,
    "baiduSite": ("https://www.example.com/", "https://www.example.com"),
    "googleIndexing": ("jobPosting",) * 2,
    "googleCredentials": (ACCOUNT, MASK),
    "googleDailyQuota": (400, 400),
    "googlePriority": ("random",) * 2,
    "googleProperty": ("https://www.example.com", "https://www.example.com/"),
}
NEEDS = {
    "bingEnabled": {"bingApiKey": BING_KEY},
    "baiduEnabled": {"baiduToken": BING_KEY},
    "googleIndexing": {"googleCredentials": ACCOUNT},
}
FOLLOWS: dict[str, dict[str, Any]] = {
    "sitemapUrls": {"sitemapUrl": "https://example.com/de.xml"},
    "bingEnabled": {"bingApiKey": MASK},
    "baiduEnabled": {"baiduToken": MASK},
    "googleIndexing": {"googleCredentials": MASK},
}


@pytest.fixture
def full() -> Site:
    """A site on which nothing has its default."""
    document = {name: given for name, (given, _) in FULL.items()}
    return read_site({"id": "shop", "host": "example.com", **document})


def find_refusal(document: dict[str, Any]) -> SiteError:
    with pytest.raises(SiteError) as caught:
        read_site(document)
    return caught.value


def test_what_is_left_out_gets_its_default() -> None:
    """A2, A3: a sitemap and a key are enough; the id is the host."""
    assert describe_site(read_site(MINIMAL)) == DEFAULTS


def test_the_callers_defaults_are_used_where_engines_and_schedule_are_not_given() -> None:
    """A1, A2: INDEXNOW_SEARCH_ENGINES and CRON_SCHEDULE hold for sites that say nothing else."""
    site = read_site(MINIMAL, engines=["yandex.com"], schedule="5 5 * * *")
    said = read_site({**MINIMAL, "searchEngines": ["www.bing.com"], "schedule": "1 1 * * *"}, engines=["yandex.com"])
    assert ([str(each) for each in site.engines], site.schedule) == (["yandex.com"], "5 5 * * *")
    assert ([str(each) for each in said.engines], said.schedule) == (["www.bing.com"], "1 1 * * *")


@pytest.mark.parametrize("name", FULL)
def test_each_field_is_read_and_shown_and_touches_no_other(name: str) -> None:
    """A2, A3: in at creation, out in the answer."""
    given, shown = FULL[name]
    document = {**MINIMAL, **NEEDS.get(name, {}), name: given}
    if name == "sitemapUrls":
        del document["sitemapUrl"]
    assert describe_site(read_site(document)) == {**DEFAULTS, **FOLLOWS.get(name, {}), name: shown}


@pytest.mark.parametrize("name", FULL)
def test_each_field_can_be_changed_and_the_others_stay(full: Site, name: str) -> None:
    """A2: PUT is partial, in both directions: from the defaults, and from a site that has none."""
    given, shown = FULL[name]
    plain = change_site(read_site(MINIMAL), {**NEEDS.get(name, {}), name: given})
    assert describe_site(plain) == {**DEFAULTS, **FOLLOWS.get(name, {}), name: shown}
    assert change_site(full, {name: given}) == full


def test_a_change_of_nothing_changes_nothing_keys_included(full: Site) -> None:
    """A2, A4: also what is masked in every answer."""
    assert change_site(full, {}) == full
    assert change_site(read_site(MINIMAL), {}) == read_site(MINIMAL)


@pytest.mark.parametrize(
    "name", sorted(FULL.keys() - {"sitemapUrls", "indexnowKey", "bingApiKey", "baiduToken", "googleCredentials"})
)
def test_null_sets_a_field_back_to_its_default(full: Site, name: str) -> None:
    """A2: and leaves every other one as it is."""
    changed = describe_site(change_site(full, {name: None}))
    default = f"https://example.com/{MASK}.txt" if name == "keyLocation" else DEFAULTS[name]
    assert changed == {**describe_site(full), name: default}


def test_null_takes_bings_key_away_where_bing_is_off(full: Site) -> None:
    """A3: with Bing on, the key is required."""
    changed = change_site(full, {"bingEnabled": False, "bingApiKey": None})
    assert (changed.bing.enabled, changed.bing.key) == (False, None)
    with pytest.raises(SiteError, match="bingApiKey is required when bingEnabled is true"):
        change_site(full, {"bingApiKey": None})


def test_bing_can_be_switched_off_and_on_again_with_the_key_it_had(full: Site) -> None:
    """A3: PUT can enable Bing on an existing site."""
    off = change_site(full, {"bingEnabled": False})
    assert off.bing.key == full.bing.key
    assert change_site(off, {"bingEnabled": True}) == full


@pytest.mark.parametrize("name", ["indexnowKey", "sitemapUrl", "sitemapUrls"])
def test_what_has_no_default_cannot_be_set_to_null(full: Site, name: str) -> None:
    """A2: the field is named."""
    with pytest.raises(SiteError) as caught:
        change_site(full, {name: None})
    assert caught.value.field.startswith(name.removesuffix("s"))


def test_another_key_moves_the_key_file_unless_its_place_was_chosen(full: Site) -> None:
    """A15: the default is named after the key; one that was set stays where it is."""
    moved = change_site(read_site(MINIMAL), {"indexnowKey": OTHER_KEY})
    assert moved.key_location == f"https://example.com/{OTHER_KEY}.txt"
    assert change_site(full, {"indexnowKey": KEY}).key_location == "https://example.com/keys/the-key.txt"


def test_the_default_key_file_goes_along_with_another_scheme_and_the_host_stays() -> None:
    """A2, A15: `keyLocation` defaults to the key's file at the root of the host, which is set at creation."""
    site = read_site({**MINIMAL, "sitemapUrl": "http://example.com/sitemap.xml"})
    assert site.key_location == f"http://example.com/{KEY}.txt"
    with pytest.raises(SiteError, match="host: it stays as it was created"):
        change_site(site, {"host": "www.example.com"})
    secure = change_site(site, {"sitemapUrl": "https://example.com/sitemap.xml"})
    assert secure.key_location == f"https://example.com/{KEY}.txt"


@pytest.mark.parametrize("name", ["sitemapUrl", "sitemapUrls"])
def test_sitemaps_are_replaced_as_a_whole_under_either_name(full: Site, name: str) -> None:
    """A2: the old ones do not linger under the other name."""
    new = "https://example.com/new.xml"
    changed = change_site(full, {name: [new] if name == "sitemapUrls" else new})
    assert changed.sitemap_urls == (new,)


def test_both_names_together_list_each_sitemap_once() -> None:
    """A2: `sitemapUrl` first."""
    first, second = "https://example.com/1.xml", "https://example.com/2.xml"
    site = read_site({**MINIMAL, "sitemapUrl": second, "sitemapUrls": [first, second]})
    assert site.sitemap_urls == (second, first)


def test_the_id_cannot_be_changed(full: Site) -> None:
    """A2: its history and ledger go by it."""
    assert change_site(full, {"id": "another"}) == full


@pytest.mark.parametrize("name", ["indexnowKey", "bingApiKey", "baiduToken", "googleCredentials", "keyLocation"])
def test_a_mask_is_refused_as_a_value(full: Site, name: str) -> None:
    """A4: a client that reads a site and writes all of it back does not replace a key by asterisks."""
    value = f"https://example.com/{MASK}.txt" if name == "keyLocation" else MASK
    with pytest.raises(SiteError) as caught:
        change_site(full, {name: value})
    assert caught.value.field == name
    assert find_refusal({**MINIMAL, name: value}).field == name


def test_what_an_answer_shows_can_be_sent_back_without_what_is_masked(full: Site) -> None:
    """A2, A4: every other field has the same form in both directions."""
    shown = {name: value for name, value in describe_site(full).items() if MASK not in str(value)}
    assert change_site(full, shown) == full


def test_a_key_is_masked_wherever_it_stands() -> None:
    """A4: also as the name of its file, in a folder."""
    site = make_site(
        sitemap_urls=["https://example.com/sitemap.xml"],
        key=KEY,
        key_location=f"https://example.com/shop/{KEY}.txt",
    )
    assert describe_site(site)["keyLocation"] == f"https://example.com/shop/{MASK}.txt"
    assert KEY not in str(describe_site(site))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"indexnowKey": "short"}, "indexnowKey"),
        ({"sitemapUrl": "ftp://example.com/"}, "sitemapUrl"),
        ({"sitemapUrls": []}, "sitemapUrl"),
        ({"backupSitemapUrls": ["nowhere"]}, "backupSitemapUrls"),
        ({"keyLocation": "https://other.example/key.txt"}, "keyLocation"),
        ({"searchEngines": []}, "searchEngines"),
        ({"schedule": "sometimes"}, "schedule"),
        ({"bingDailyQuota": 0}, "bingDailyQuota"),
        ({"bingDailyQuota": 501}, "bingDailyQuota"),
        ({"bingApiKey": "two words"}, "bingApiKey"),
        ({"baiduToken": "two words"}, "baiduToken"),
        ({"baiduSite": "https://example.com/shop"}, "baiduSite"),
        ({"googleCredentials": "{}"}, "googleCredentials"),
        ({"googleCredentials": ACCOUNT.replace("https://oauth2", "ftp://oauth2")}, "googleCredentials"),
        ({"googleIndexing": "blog", "googleCredentials": ACCOUNT}, "googleIndexing"),
        ({"googleProperty": "example.com"}, "googleProperty"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused_by_its_name_at_creation_and_change(
    full: Site, changes: dict[str, Any], field: str
) -> None:
    """A2, A3: one message, the same for both."""
    with pytest.raises(SiteError) as caught:
        change_site(full, changes)
    assert caught.value.field == field
    document = {name: value for name, value in MINIMAL.items() if name != "sitemapUrl" or "sitemapUrls" not in changes}
    assert find_refusal({**document, **changes}).field == field


def test_bing_without_its_key_is_refused_in_the_words_of_the_contract() -> None:
    """A3: the message contains what clients look for."""
    assert "bingApiKey is required when bingEnabled is true" in str(find_refusal({**MINIMAL, "bingEnabled": True}))


def test_a_site_without_a_key_is_refused_with_the_command_that_makes_one() -> None:
    """A2, A4."""
    assert "`tidings keys new --indexnow`" in str(find_refusal({"sitemapUrl": "https://example.com/sitemap.xml"}))
