"""The catalogues: the same texts in both languages, and every text that a page names."""

import re
from pathlib import Path

import pytest

from tidings.web.pages.view.texts import CATALOGUES, PageLanguage, choose_language, load_texts

PAGES = CATALOGUES.parent
NAMED = re.compile(r"""\bt(?:exts)?(?:\.count)?\(\s*f?["']([a-z_]+(?:\.[a-z_{}]+)+)["']""")
FIELD = re.compile(r"\{(\w+)\}")


def list_named_keys() -> set[str]:
    files = [*PAGES.rglob("*.py"), *(PAGES / "templates").glob("*.html")]
    return {key for path in files for key in NAMED.findall(path.read_text())}


def drop_forms(keys: set[str]) -> set[str]:
    """Keys without their plural forms: a language has as many as it needs."""
    return {re.sub(r"\.(one|other)$", "", key) for key in keys}


def test_both_languages_have_every_text() -> None:
    english, chinese = (set(load_texts(language).entries) for language in PageLanguage)
    assert drop_forms(english) == drop_forms(chinese)


def test_every_text_shows_the_same_fields_in_both_languages() -> None:
    english, chinese = (load_texts(language).entries for language in PageLanguage)
    fields = {
        key: (set(FIELD.findall(text)), set(FIELD.findall(chinese[key])))
        for key, text in english.items()
        if key in chinese
    }
    assert {key: both for key, both in fields.items() if both[0] != both[1]} == {}


def test_pages_name_only_texts_that_exist() -> None:
    known = drop_forms(set(load_texts(PageLanguage.ENGLISH).entries))
    whole = {key for key in list_named_keys() if "{" not in key}
    assert len(whole) > 100
    assert whole - known == set()


def test_chinese_texts_use_full_width_punctuation() -> None:
    texts = load_texts(PageLanguage.CHINESE).entries
    wrong = re.compile(r"[一-鿿][,;:!?]|[,;:!?][一-鿿]")
    assert {key: text for key, text in texts.items() if wrong.search(text)} == {}


@pytest.mark.parametrize(
    ("cookie", "accept", "chosen"),
    [
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr-FR,en;q=0.5", "en"),
        (None, None, "zh"),
        ("en", "zh-CN", "en"),
        ("xx", "en", "en"),
        (None, ",;=q,,", "zh"),
    ],
)
def test_language_is_the_persons_choice_then_the_browsers_then_the_installations(
    cookie: str | None, accept: str | None, chosen: str
) -> None:
    assert choose_language(cookie, accept, default=PageLanguage.CHINESE) == chosen


def test_a_number_gets_its_form() -> None:
    texts = load_texts(PageLanguage.ENGLISH)
    assert texts.count("sites.total", 1) == "1 site"
    assert texts.count("sites.total", 1204) == "1,204 sites"
    assert load_texts(PageLanguage.CHINESE).count("sites.total", 1) == "共 1 个站点"


def test_no_template_has_inline_style_or_script() -> None:
    """The content security policy forbids both; a browser would drop them silently."""
    found = [
        path.name
        for path in Path(PAGES / "templates").glob("*.html")
        if re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?![^>]*\ssrc=)|\|safe|javascript:", path.read_text())
    ]
    assert found == []
