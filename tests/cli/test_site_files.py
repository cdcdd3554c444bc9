"""`tidings sites export` and `import`: a fleet as one file, and who may see which part of it."""

import json
from typing import Any

import pytest

from tests.cli.terminal import Terminal, announce_words, make_sandbox

pytestmark = pytest.mark.one_database

KEY = "an-indexnow-key-of-good-form"
SECRET = "a-secret-of-deploy-hooks"


def make_document(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "sitemapUrl": f"https://{name}.example/sitemap.xml", "indexnowKey": KEY, **fields}


async def test_a_file_is_imported_once_and_the_same_file_again_changes_nothing(terminal: Terminal) -> None:
    """A2: a dry run shows the difference and changes nothing; fields that are left out stay, keys too."""
    path = terminal.folder / "fleet.json"
    shop = make_document("shop", group="acme", hookSecret=SECRET, keyLocation=f"https://shop.example/a/{KEY}.txt")
    path.write_text(json.dumps({"sites": [shop, make_document("blog")]}))
    dry = await terminal.run("sites", "import", "fleet.json", "--dry-run")
    assert (dry.code, "+ shop" in dry.out, "dry run: nothing was changed" in dry.out) == (0, True, True)
    assert not terminal.data_dir.exists()
    first = await terminal.run("sites", "import", "fleet.json", "--json")
    again = await terminal.run("sites", "import", "fleet.json", "--json")
    assert (first.document["added"], first.document["unchanged"]) == (["shop", "blog"], 0)
    assert (again.document["added"], again.document["changed"], again.document["unchanged"]) == ([], {}, 2)
    exported = await terminal.run("sites", "export", "out.json")
    text = (terminal.folder / "out.json").read_text()
    assert (exported.code, KEY in text, SECRET in text, "/a/{key}.txt" in text) == (0, False, False, True)
    assert (terminal.folder / "out.json").stat().st_mode & 0o777 == 0o600
    same = await terminal.run("sites", "import", "out.json", "--json")
    assert (same.document["changed"], same.document["unchanged"]) == ({}, 2)
    path.write_text(text.replace('"0 0 * * *"', '"30 6 * * *"', 1))
    changed = await terminal.run("sites", "import", "fleet.json")
    assert "schedule: 0 0 * * * → 30 6 * * *" in changed.out
    assert "1 changed, 1 unchanged." in changed.out


async def test_an_export_with_secrets_sets_up_another_machine(terminal: Terminal) -> None:
    """A2, A4: only if it is asked for."""
    (terminal.folder / "fleet.json").write_text(json.dumps([make_document("shop", bingEnabled=True, bingApiKey="b1")]))
    await terminal.run("sites", "import", "fleet.json")
    exported = await terminal.run("sites", "export", "--with-secrets")
    other = {"TIDINGS_DATA_DIR": str(terminal.folder / "other")}
    (terminal.folder / "all.json").write_text(exported.out)
    assert (await terminal.run("sites", "import", "all.json", **other)).code == 0
    again = await terminal.run("sites", "export", "--with-secrets", **other)
    assert KEY in again.out
    assert json.loads(again.out) == json.loads(exported.out)


async def test_a_site_that_was_announced_by_hand_gets_no_schedule_on_another_machine(terminal: Terminal) -> None:
    """A2: it has none here either."""
    async with make_sandbox(pages=5) as sandbox:
        assert (await terminal.run(*announce_words(sandbox))).code == 0
    [site] = json.loads((await terminal.run("sites", "export")).out)["sites"]
    assert site["enabled"] is False


@pytest.mark.parametrize(
    ("documents", "rule"),
    [
        ([{"id": "shop", "sitemapUrl": "https://shop.example/s.xml"}], "site 1 (shop): indexnowKey: it is required"),
        ([make_document("shop", schedule="never")], "site 1 (shop): schedule: it must be a cron expression"),
        ([make_document("shop", colour="red")], "site 1 (shop): colour: Extra inputs are not permitted"),
        ([make_document("shop"), make_document("shop", schedule="@daily")], "names shop more than once"),
        ([{"sitemapUrl": "https://a.example/s.xml"}], "site 1 (without an id): indexnowKey: it is required"),
        ("no list", "it must be JSON such as"),
        ({}, "it must be JSON such as"),
    ],
)
async def test_a_mistake_in_the_file_changes_nothing(terminal: Terminal, documents: Any, rule: str) -> None:
    """A2: one line names the site and the rule, and the good sites before it are not stored either."""
    good = [make_document("good")] if isinstance(documents, list) else []
    (terminal.folder / "fleet.json").write_text(json.dumps({"sites": [*documents, *good] if good else documents}))
    missing = await terminal.run("sites", "import", "nowhere.json")
    assert (missing.code, "nowhere.json cannot be read" in missing.err) == (2, True)
    ended = await terminal.run("sites", "import", "fleet.json")
    assert (ended.code, rule in ended.err) == (2, True)
    assert (await terminal.run("sites", "list", "--json")).document["sites"] == []


async def test_the_host_of_a_site_stays_as_it_was_created(terminal: Terminal) -> None:
    """A2: a file cannot give the pages on record to another host; the API has no way to do it either."""
    path = terminal.folder / "fleet.json"
    path.write_text(json.dumps([make_document("shop")]))
    await terminal.run("sites", "import", "fleet.json")
    path.write_text(json.dumps([make_document("shop", host="SHOP.example", schedule="@hourly")]))
    same = await terminal.run("sites", "import", "fleet.json", "--json")
    assert list(same.document["changed"]["shop"]) == ["schedule"]
    path.write_text(json.dumps([make_document("shop", host="other.example")]))
    refused = await terminal.run("sites", "import", "fleet.json")
    assert (refused.code, "site 1 (shop): host: it stays as it was created" in refused.err) == (2, True)
    assert (await terminal.run("sites", "show", "shop")).document["site"]["host"] == "shop.example"


async def test_an_export_replaces_files_alone(terminal: Terminal) -> None:
    """A2: one line says why a file cannot be written; a link such as /dev/stdout is not replaced."""
    (terminal.folder / "mine.json").write_text("mine")
    (terminal.folder / "link").symlink_to("mine.json")
    link, nowhere = [await terminal.run("sites", "export", name) for name in ("link", "none/out.json")]
    assert (link.code, "link is no plain file" in link.complaint) == (2, True)
    assert (terminal.folder / "link").is_symlink()
    assert (terminal.folder / "mine.json").read_text() == "mine"
    assert (nowhere.code, nowhere.complaint) == (
        1,
        "tidings: none/out.json cannot be written: No such file or directory",
    )
