"""The fixtures: a real service on loopback, and a real browser that reports every error of a page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from tests.browser.install import find_chromium
from tests.web.api_stage import ApiStage, open_api, serve

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESKTOP = (1440, 900)
PHONE = (390, 844)
# On a busy machine a page may take this long, and what is expected of it too.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
# All tests share one browser, so they and their fixtures share its loop.
MARKS = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@dataclass(slots=True)
class Visit:
    """A page of the dashboard in a browser. `errors` are console errors, which include violations of the policy."""

    page: Page
    origin: str
    api: ApiStage
    errors: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        """Record what any page of this context logs as an error, or throws."""
        # Playwright hangs its own attribute on a method, which a class with slots does not allow.
        context.on("console", lambda message: self._record_message(message))
        context.on("weberror", lambda error: self.errors.append(f"{self.page.url}: {error.error}"))

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "favicon" not in message.text:
            self.errors.append(f"{message.page.url if message.page else ''}: {message.text}")

    @asynccontextmanager
    async def open_another(self, **options: Any) -> AsyncIterator[Page]:
        """A page of another person's browser, which may log no error either."""
        browser = self.page.context.browser
        assert browser is not None
        context = await browser.new_context(**options)
        self.watch(context)
        yield await context.new_page()
        await context.close()

    async def open(self, path: str) -> None:
        await self.page.goto(self.origin + path)


@pytest_asyncio.fixture(loop_scope="session")
async def api(sqlite_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(sqlite_url, tmp_path, pages=60) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def origin(api: ApiStage) -> AsyncIterator[str]:
    async with serve(api) as port:
        yield f"http://127.0.0.1:{port}"


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    found = find_chromium()
    assert found, "no Chromium: `make test-browser` installs one"
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session", params=[DESKTOP, PHONE], ids=["desktop", "phone"])
async def visit(request: pytest.FixtureRequest, browser: Browser, origin: str, api: ApiStage) -> AsyncIterator[Visit]:
    """At desktop and phone size. No page may log an error."""
    width, height = request.param
    context = await browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    made = Visit(await context.new_page(), origin, api)
    made.watch(context)
    made.page.set_default_timeout(PATIENCE_MS)
    yield made
    await context.close()
    assert made.errors == []
