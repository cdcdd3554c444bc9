"""Takes pictures: a browser that has signed in, in one language, theme and size."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from playwright.async_api import Error as BrowserError

from scripts.screenshots.services import Photographed
from tests.browser.conftest import ARGUMENTS
from tests.browser.install import find_chromium

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
LOCALES = {"en": "en-GB", "zh": "zh-CN"}
THEMES = ("light", "dark")
# On a busy machine a page may take this long.
PATIENCE_MS = 120_000
# What is far below is drawn when somebody scrolls to it.
_SHOW_ALL = "document.querySelectorAll('.below-fold').forEach((part) => { part.style.contentVisibility = 'visible' })"
_WRITE_WEBP = """async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext("2d").drawImage(image, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.8 });
    return Array.from(new Uint8Array(await blob.arrayBuffer()));
}"""


@dataclass(frozen=True, slots=True)
class Look:
    """How the dashboard is set."""

    language: str
    theme: str
    size: str

    def __str__(self) -> str:
        return f"{self.language}-{self.theme}-{self.size}"


def list_looks() -> Iterator[Look]:
    """Every language, theme and size."""
    for size, language, theme in product(SIZES, LOCALES, THEMES):
        yield Look(language, theme, size)


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        yield browser
        await browser.close()


@asynccontextmanager
async def open_context(browser: Browser, service: Photographed, look: Look, *, token: str) -> AsyncIterator[Page]:
    """A page of a browser that has signed in with this token; without one, of a stranger."""
    width, height = SIZES[look.size]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        locale=LOCALES[look.language],
        timezone_id="Asia/Shanghai" if look.language == "zh" else "Europe/London",
        device_scale_factor=1,
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    cookies = {"language": look.language, "theme": look.theme}
    await context.add_cookies(
        [{"name": name, "value": value, "url": service.origin} for name, value in cookies.items()]
    )
    page = await context.new_page()
    if token:
        await page.goto(f"{service.origin}/sign-in")
        await page.locator("#token").fill(token)
        await page.locator("main form button.primary").click()
        await page.wait_for_url(f"{service.origin}/")
    yield page
    await context.close()


async def take(page: Page, target: Path) -> None:
    """The whole page as PNG."""
    await _settle(page)
    await page.screenshot(path=target, full_page=True)


async def take_top(page: Page, target: Path, *, height: int) -> None:
    """The top of the page as WebP, which is a third of a PNG; the browser can write it."""
    await _settle(page)
    width = page.viewport_size["width"] if page.viewport_size else 0
    picture = await page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    await asyncio.to_thread(target.write_bytes, await _make_webp(page.context, picture))


async def _settle(page: Page) -> None:
    """Wait for the fonts, the last to come: a stream keeps the network busy. It may also load the page anew."""
    for _ in range(5):
        try:
            await page.wait_for_load_state()
            await page.evaluate("document.fonts.ready")
            await page.evaluate(_SHOW_ALL)
        except BrowserError:
            continue
        return


async def _make_webp(context: BrowserContext, picture: bytes) -> bytes:
    page = await context.new_page()
    numbers = await page.evaluate(_WRITE_WEBP, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    await page.close()
    return bytes(numbers)
