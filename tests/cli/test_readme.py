"""The lines of both READMEs for a build work as they stand there."""

import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, make_sandbox

ROOT = Path(__file__).parents[2]
SITE = "https://example.com"


def read_build_lines(name: str) -> list[str]:
    """The commands of the block that begins with `announce --url`, without their comments."""
    (block,) = re.findall(r"```\n(\.venv/bin/tidings announce --url .*?)```", (ROOT / name).read_text(), re.DOTALL)
    joined = block.replace("|\n", "| ")
    return [line.partition("#")[0].strip() for line in joined.splitlines()]


def make_repository(folder: Path) -> None:
    """A repository whose last commit changed one page and added another."""
    folder.mkdir()
    git = ("git", "-c", "user.name=n", "-c", "user.email=n@example.com", "-C", str(folder))
    for text in ("before", "after"):
        (folder / "old.html").write_text(text)
        (folder / f"{text}.html").write_text(text)
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", text)):
            subprocess.run([*git, *words], check=True, capture_output=True)


def run_shell(line: str, *, folder: Path) -> str:
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
async def test_every_line_for_a_build_announces_its_pages(terminal: Terminal, tmp_path: Path, name: str) -> None:
    """A2, A5: --url, a sitemap file, --since, and a list made by `git diff`."""
    make_repository(tmp_path / "site")
    async with make_sandbox(pages=2) as sandbox:
        origin, engine = sandbox.site.sitemap_url.rpartition("/")[0], sandbox.engines[0]
        (terminal.folder / "dist").mkdir()
        changed = f"<lastmod>{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}</lastmod>"
        pages = "".join(f"<url><loc>{url}</loc>{changed}</url>" for url in sandbox.site.urls())
        (terminal.folder / "dist" / "sitemap.xml").write_text(f"<urlset>{pages}</urlset>")
        lines = [line.replace(SITE, origin).replace("$KEY", sandbox.site.key) for line in read_build_lines(name)]
        assert len(lines) == 4
        for line in lines:
            made, _, command = line.rpartition("| ")
            words = [*shlex.split(command)[1:], "--engine", engine.endpoint]
            ended = await terminal.pipe(*words, given=run_shell(made, folder=tmp_path / "site"))
            assert ended.code == 0, (line, ended.out, ended.complaint)
        expected = {f"{origin}/{page}" for page in ("new", "old.html", "after.html")}
        assert set(engine.accepted) == expected | set(sandbox.site.urls())
