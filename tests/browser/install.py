"""Finds or installs what the browser tests need: Chromium from Debian's packages, axe-core from npm.

`python -m tests.browser.install` may run as often as one likes. TIDINGS_CHROMIUM names another browser to use.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

AXE = "4.10.3"
CHROMIUM = "TIDINGS_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_chromium() -> str | None:
    """The browser that TIDINGS_CHROMIUM names, or the first one that is installed."""
    named = os.environ.get(CHROMIUM)
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def find_axe() -> Path:
    """Where axe-core's script lies, outside the repository."""
    folder = Path(os.environ.get("TIDINGS_BROWSER_DIR") or Path.home() / ".cache" / "tidings-browser").expanduser()
    return folder / AXE / "node_modules" / "axe-core" / "axe.min.js"


def install_chromium() -> None:
    if find_chromium():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"No Chromium was found. Install one, or name it in {CHROMIUM}.")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", "chromium", "fonts-noto-cjk"], check=True)


def install_axe() -> None:
    script = find_axe()
    if script.is_file():
        return
    folder = script.parents[2]
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    subprocess.run(["npm", "install", *options, "--prefix", str(folder), f"axe-core@{AXE}"], check=True)


if __name__ == "__main__":
    install_chromium()
    install_axe()
