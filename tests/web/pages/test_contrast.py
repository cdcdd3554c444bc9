"""Colours: every text on its background keeps WCAG AA, in the light and the dark theme."""

import re

import pytest

from tidings.web.pages.view.rendering import STATIC

CSS = (STATIC / "tidings.css").read_text()
BLOCK = re.compile(r"(:root|\[data-theme=dark\]|\[data-theme=auto\]) \{([^}]*)\}")
GROUNDS = ("canvas", "surface", "sunken")
# Text, backgrounds, least contrast.
PAIRS = (
    *((text, GROUNDS, 4.5) for text in ("text", "muted", "accent", "ok", "warn", "bad")),
    *((name, (f"{name}-bg",), 4.5) for name in ("ok", "warn", "bad", "quiet", "accent")),
    ("muted", ("ok-bg", "warn-bg", "bad-bg"), 4.5),
    ("text", ("mark", "ok-bg", "warn-bg", "bad-bg"), 4.5),
    ("on-accent", ("accent",), 4.5),
    ("surface", ("bad",), 4.5),
    *((graph, GROUNDS, 3.0) for graph in ("control", "g-accepted", "g-failed", "g-waiting")),
    ("g-accepted", ("g-rest",), 3.0),
)


def read_themes() -> dict[str, dict[str, str]]:
    return {selector: dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", body)) for selector, body in BLOCK.findall(CSS)}


def find_luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def find_contrast(first: str, second: str) -> float:
    dark, light = sorted((find_luminance(first), find_luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [":root", "[data-theme=dark]"])
def test_every_text_can_be_read_on_its_background(theme: str) -> None:
    colours = read_themes()[theme]
    weak = {
        f"{text} on {ground}": round(find_contrast(colours[text], colours[ground]), 2)
        for text, grounds, least in PAIRS
        for ground in grounds
        if find_contrast(colours[text], colours[ground]) < least
    }
    assert weak == {}


def test_the_automatic_theme_is_the_dark_one() -> None:
    themes = read_themes()
    assert themes["[data-theme=auto]"] == themes["[data-theme=dark]"]
    assert themes["[data-theme=dark]"].keys() == themes[":root"].keys()
