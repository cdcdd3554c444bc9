"""Takes pictures of every page of the dashboard: both languages, both themes, both sizes.

    python -m scripts.screenshots FOLDER [--only SCENE]… [--look LANGUAGE-THEME-SIZE]… [--readme]

Starts `tidings demo` and an empty service in folders of their own, and ends them again. `--readme` writes the four
pictures of the README to docs/images instead. Needs Chromium and playwright (`make test-browser`).
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser

from scripts.screenshots.camera import Look, list_looks, open_browser, open_context, take, take_top
from scripts.screenshots.scenes import EMPTY, STRANGER, VIEWER, Scene, find_scenes
from scripts.screenshots.services import ROOT, Photographed, run_demo, run_empty

IMAGES = ROOT / "docs" / "images"
# Name of the picture → scene, look, and the height that is kept.
README: Mapping[str, tuple[str, Look, int]] = {
    "overview": ("overview", Look("en", "light", "desktop"), 1250),
    "site": ("running", Look("en", "dark", "desktop"), 1100),
    "notes": ("notes", Look("zh", "light", "desktop"), 900),
    "phone": ("overview", Look("zh", "dark", "phone"), 1400),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command asks for."""

    folder: Path
    # Names of scenes; empty means all.
    only: Sequence[str]
    # Empty means all.
    looks: Sequence[str]

    def fits(self, scene: Scene, look: Look) -> bool:
        return (not self.only or scene.name in self.only) and scene.size in (None, look.size)


async def take_all(wanted: Wanted) -> None:
    looks = [look for look in list_looks() if not wanted.looks or str(look) in wanted.looks]
    async with open_browser() as browser:
        async with run_empty() as empty:
            for look in looks:
                await _take_scenes(browser, empty, look, EMPTY, wanted, token=empty.token)
        async with run_demo() as demo:
            await let_demo_move(browser, demo)
            for look in looks:
                async with open_context(browser, demo, look, token=demo.token) as page:
                    scenes = await find_scenes(page, demo.origin)
                await _take_scenes(browser, demo, look, STRANGER, wanted, token="")
                await _take_scenes(browser, demo, look, VIEWER, wanted, token=demo.viewer)
                await _take_scenes(browser, demo, look, scenes, wanted, token=demo.token)


async def _take_scenes(
    browser: Browser, service: Photographed, look: Look, scenes: Sequence[Scene], wanted: Wanted, *, token: str
) -> None:
    shown = [scene for scene in scenes if wanted.fits(scene, look)]
    if not shown:
        return
    async with open_context(browser, service, look, token=token) as first:
        for scene in shown:
            # A page of its own: live progress of the last one could load that page anew.
            page = await first.context.new_page()
            await page.goto(service.origin + scene.path)
            if scene.act is not None:
                await scene.act(page)
            await take(page, wanted.folder / f"{scene.name}-{look}.png")
            await page.close()


async def take_readme() -> None:
    async with open_browser() as browser, run_demo() as demo:
        await let_demo_move(browser, demo)
        for name, (wanted, look, height) in README.items():
            async with open_context(browser, demo, look, token=demo.token) as page:
                [scene] = [each for each in await find_scenes(page, demo.origin) if each.name == wanted]
                await page.goto(demo.origin + scene.path)
                if scene.act is not None:
                    await scene.act(page)
                await take_top(page, IMAGES / f"{name}.webp", height=height)


async def let_demo_move(browser: Browser, demo: Photographed) -> None:
    """Wait until the demo announced changes of both its sites by itself."""
    async with open_context(browser, demo, Look("en", "light", "desktop"), token=demo.token) as page:
        for _ in range(60):
            await page.goto(f"{demo.origin}/sites/docs.example/executions")
            if await page.locator("tbody .badge.ok, tbody .badge.warn").count() > 3:
                break
            await page.wait_for_timeout(2_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshots", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("screenshots"))
    parser.add_argument("--only", action="append", default=[], help="only this scene; may be given more than once")
    parser.add_argument("--look", action="append", default=[], help="only this look, such as en-dark-phone")
    parser.add_argument("--readme", action="store_true", help="the four pictures of the README")
    options = parser.parse_args()
    (IMAGES if options.readme else options.folder).mkdir(parents=True, exist_ok=True)
    wanted = Wanted(options.folder, options.only, options.look)
    asyncio.run(take_readme() if options.readme else take_all(wanted))


if __name__ == "__main__":
    main()
