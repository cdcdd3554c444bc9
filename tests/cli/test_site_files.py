"""`tidings sites export` and `import`: a fleet as one file, and who may see which part of it."""

import json
from typing import Any

import pytest

from tests.cli.terminal import Terminal

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


@pytest.mark.parametrize(
    ("documents", "rule"),
    [
        ([{"id": "shop", "sitemapUrl": "https://shop.example/s.xml"}], "shop: indexnowKey: it is required"),
        ([make_document("shop", schedule="never")], "shop: schedule: it must be a cron expression"),
        ([make_document("shop", colour="red")], "site 1 (shop): colour: Extra inputs are not permitted"),
        ([make_document("shop"), make_document("shop", schedule="@daily")], "names shop more than once"),
        ("no list", "it must be JSON such as"),
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
