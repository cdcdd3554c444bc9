"""Takes pictures of every page of the dashboard, from the demo: both languages, both themes, both sizes.

    python -m scripts.screenshots FOLDER [--pages NAME]… [--readme]

Starts `tidings demo` in a folder of its own, signs in with the token that it prints, and ends it again. `--readme`
writes the four pictures of the README to docs/images instead. Needs Chromium and playwright (`make test-browser`).
"""

import argparse
import asyncio
import base64
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Browser, BrowserContext, async_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.install import find_chromium

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
LANGUAGES = {"en": "en-GB", "zh": "zh-CN"}
THEMES = ("light", "dark")
# Name of the picture → page, language, theme, size, and the height that is kept.
README: Mapping[str, tuple[str, str, str, str, int]] = {
    "overview": ("overview", "en", "light", "desktop", 1250),
    "site": ("running", "en", "dark", "desktop", 1100),
    "notes": ("notes", "zh", "light", "desktop", 900),
    "phone": ("overview", "zh", "dark", "phone", 1400),
}
# On a busy machine a page may take this long.
PATIENCE_MS = 120_000
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)\S*\s+Token: (\S+)")


@asynccontextmanager
async def run_demo() -> AsyncIterator[tuple[str, str]]:
    """The demo's dashboard: its address and token."""
    with tempfile.TemporaryDirectory(prefix="tidings-screenshots-") as folder:
        environment = {**os.environ, "TIDINGS_DATA_DIR": folder, "TIDINGS_PORT": "0", "COLUMNS": "200"}
        process = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).with_name("tidings"), "demo"),
            cwd=ROOT,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield await _read_address(process)
        finally:
            process.send_signal(signal.SIGINT)
            await process.wait()


async def _read_address(process: asyncio.subprocess.Process) -> tuple[str, str]:
    lines = process.stdout
    if lines is None:
        raise SystemExit("the demo has no output")
    seen = ""
    async for line in lines:
        seen += line.decode()
        found = _ADDRESS.search(seen)
        if found:
            return found[1], found[2]
    raise SystemExit(f"the demo ended before it showed an address:\n{seen}")


async def find_pages(context: BrowserContext, origin: str) -> dict[str, str]:
    """Name and path of every page; the site is the one that the demo keeps changing."""
    page = await context.new_page()
    await page.goto(f"{origin}/sites?q=127.0.0.1")
    site = str(await page.locator("a.main-cell").first.get_attribute("href"))
    await page.goto(f"{origin}{site}/executions")
    execution = str(await page.locator("tbody a").last.get_attribute("href"))
    await page.goto(f"{origin}/notes")
    # The last one is among the first that were collected.
    note = str(await page.locator("a.main-cell").last.get_attribute("href"))
    await page.close()
    return {
        "overview": "/",
        "alerts": "/alerts",
        "sites": "/sites",
        "first-site": "/sites/new",
        "site": site,
        "running": site,
        "broken": "/sites/shop.example",
        "site-executions": f"{site}/executions",
        "execution": execution,
        "failed": "/sites/archive.example/failed",
        "site-settings": f"{site}/settings",
        "look-up": f"{site}/lookup?url={quote('http://' + site.rpartition('/')[2].replace('%3A', ':') + '/', safe='')}",
        "check": f"{site}/check",
        "dry-run": f"{site}/dry-run",
        "forget": f"{site}/forget/confirm?since=2026-01-01T00:00:00Z",
        "notes": f"/notes?q={quote('咖啡')}",
        "note": note,
        "candidates": "/candidates",
        "keywords": "/keywords",
        "cookies": "/cookies",
        "executions": "/executions",
        "workers": "/workers",
        "settings": "/settings",
        "api": "/docs",
        "unknown": "/sites/unknown.example",
    }


@asynccontextmanager
async def open_context(
    browser: Browser, origin: str, token: str, *, language: str, theme: str, size: str
) -> AsyncIterator[BrowserContext]:
    """A browser that has signed in."""
    width, height = SIZES[size]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        locale=LANGUAGES[language],
        timezone_id="Asia/Shanghai" if language == "zh" else "Europe/London",
        device_scale_factor=1,
        reduced_motion="reduce",
    )
    await context.add_cookies(
        [{"name": name, "value": value, "url": origin} for name, value in (("language", language), ("theme", theme))]
    )
    page = await context.new_page()
    await page.goto(f"{origin}/sign-in")
    await page.locator("#token").fill(token)
    await page.locator("main form button.primary").click()
    await page.wait_for_url(f"{origin}/")
    await page.close()
    yield context
    await context.close()


async def take_all(folder: Path, only: list[str]) -> None:
    async with run_demo() as (origin, token), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        await _let_demo_move(browser, origin, token)
        for size in SIZES:
            for language in LANGUAGES:
                for theme in THEMES:
                    look = {"language": language, "theme": theme, "size": size}
                    async with open_context(browser, origin, token, **look) as context:
                        for name, path in (await find_pages(context, origin)).items():
                            if not only or name in only:
                                target = folder / f"{name}-{language}-{theme}-{size}.png"
                                await _take(context, origin + path, target, running=name == "running")
        await browser.close()


async def take_readme() -> None:
    async with run_demo() as (origin, token), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        await _let_demo_move(browser, origin, token)
        for name, (page, language, theme, size, height) in README.items():
            look = {"language": language, "theme": theme, "size": size}
            async with open_context(browser, origin, token, **look) as context:
                pages = await find_pages(context, origin)
                target = IMAGES / f"{name}.webp"
                await _take(context, origin + pages[page], target, height=height, running=page == "running")
        await browser.close()


async def _let_demo_move(browser: Browser, origin: str, token: str) -> None:
    """Wait until the demo announced a change by itself: a fifth execution stands in the history."""
    async with open_context(browser, origin, token, language="en", theme="light", size="desktop") as context:
        page = await context.new_page()
        for _ in range(60):
            await page.goto(f"{origin}/executions")
            if await page.locator("tbody tr").count() > 8:
                break
            await page.wait_for_timeout(2_000)
        await page.close()


async def _take(
    context: BrowserContext, address: str, target: Path, *, height: int | None = None, running: bool = False
) -> None:
    """`running`: wait until an execution is at work, and its progress has moved."""
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(address)
    for _ in range(120 if running else 0):
        if await page.locator("[data-stream] .badge").count():
            await page.wait_for_timeout(1_500)
            break
        await page.wait_for_timeout(500)
        await page.goto(address)
    # A stream keeps the network busy, so the load event has to do; fonts are the last to come.
    await page.evaluate("document.fonts.ready")
    # What is far below is drawn when somebody scrolls to it.
    show = "document.querySelectorAll('.below-fold').forEach((part) => { part.style.contentVisibility = 'visible' })"
    await page.evaluate(show)
    if height is None:
        await page.screenshot(path=target, full_page=True)
    else:
        width = page.viewport_size["width"] if page.viewport_size else 0
        picture = await page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
        await asyncio.to_thread(target.write_bytes, await _make_webp(context, picture))
    await page.close()


async def _make_webp(context: BrowserContext, picture: bytes) -> bytes:
    """A PNG as WebP, which is a third of its size; the browser can write it."""
    page = await context.new_page()
    script = """async (source) => {
        const image = new Image();
        image.src = source;
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height);
        canvas.getContext("2d").drawImage(image, 0, 0);
        const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.8 });
        return Array.from(new Uint8Array(await blob.arrayBuffer()));
    }"""
    numbers = await page.evaluate(script, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    await page.close()
    return bytes(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshots", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("screenshots"))
    parser.add_argument("--pages", action="append", default=[], help="only this page; may be given more than once")
    parser.add_argument("--readme", action="store_true", help="the four pictures of the README")
    options = parser.parse_args()
    (IMAGES if options.readme else options.folder).mkdir(parents=True, exist_ok=True)
    asyncio.run(take_readme() if options.readme else take_all(options.folder, options.pages))


if __name__ == "__main__":
    main()
