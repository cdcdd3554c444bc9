"""Tries the installed Tidings: the demo, the service with metrics and dashboard, an article and a feed.

    python -m scripts.smoke

`make test-lowest` runs it with the oldest versions of all libraries that pyproject.toml allows.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from tidings.sandbox.media.openweb import SandboxOpenWeb

TOKEN = "a-long-one-for-this-try-7Kp2"  # noqa: S105 - of a service that lives for seconds
COMMAND = Path(sys.executable).with_name("tidings")
PATIENCE = 60.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([COMMAND, "demo", "--once"], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        print("demo: done")  # noqa: T201
        asyncio.run(try_service(Path(folder)))


async def try_service(folder: Path) -> None:
    variables = {"TIDINGS_TOKEN": TOKEN, "TIDINGS_DATA_DIR": str(folder / "data")}
    settings = {"TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8", "PLATFORM_INTERVAL_SECONDS": "0"}
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        *("serve", "--port", "0", "--quiet"),
        cwd=folder,
        env={**os.environ, **variables, **settings},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE), SandboxOpenWeb() as site, aiohttp.ClientSession() as session:
            url = await find_url(process)
            session.headers["Authorization"] = f"Bearer {TOKEN}"
            while (await session.get(f"{url}/health/ready")).status != 200:
                pass
            for path in ("/health/ready", "/metrics", "/api/sites", "/openapi.json", "/sign-in"):
                await ask(session, "GET", url + path)
            await ask(session, "POST", f"{url}/crawler/detail", {"platform": "web", "url": site.url(5)})
            await ask(session, "POST", f"{url}/crawler/search", {"platform": "web", "keyword": site.rss_url})
    finally:
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
    print(f"serve: ended with code {code}")  # noqa: T201
    sys.exit(code)


async def find_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    while line := (await process.stdout.readline()).decode():
        if "listens on" in line:
            return line.split()[3]
    sys.exit("serve: it did not start")


async def ask(session: aiohttp.ClientSession, method: str, url: str, document: Any = None) -> None:
    async with session.request(method, url, json=document) as answer:
        print(f"{method} {url.partition('/')[2]}: {answer.status}")  # noqa: T201
        if answer.status != 200:
            sys.exit(await answer.text())


if __name__ == "__main__":
    main()
