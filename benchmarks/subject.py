"""One thing to be measured, in a process of its own: `python -m benchmarks.subject NAME ARGUMENT…`.

It does its work as its users would start it, prints what it found as one line of JSON, and then what it cost as the
last line. Its CPU time as a whole is for the parent to read. As little as possible is loaded here: all of it counts.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

LONGEST_SECONDS = 900

Work = Callable[[list[str]], None]


def load_usp() -> Work:
    """ultimate-sitemap-parser, as its documentation shows it for a sitemap whose address is known."""
    # By name, because the type checker runs where these two are not installed.
    fetcher = import_module("usp.fetch_parse").SitemapFetcher

    def read(arguments: list[str]) -> None:
        tree = fetcher(arguments[0], recursion_level=0).sitemap()
        _print({"total": sum(1 for _ in tree.all_pages())})

    return read


def load_scrapy() -> Work:
    """Scrapy's reader alone, without its engine, on files that are fetched in the cheapest way there is."""
    sitemap = import_module("scrapy.utils.sitemap").Sitemap
    fetch = import_module("urllib.request").urlopen

    def read(arguments: list[str]) -> None:
        with fetch(arguments[0]) as answer:
            children = [entry["loc"] for entry in sitemap(answer.read())]
        total = 0
        for child in children:
            with fetch(child) as answer:
                total += sum(1 for _ in sitemap(answer.read()))
        _print({"total": total})

    return read


def load_tidings() -> Work:
    """The `tidings` command."""
    from tidings.cli import main

    def run(arguments: list[str]) -> None:
        sys.argv = ["tidings", *arguments]
        with suppress(SystemExit):
            main()

    return run


def load_metronome() -> Work:
    """A sender that does nothing else: how even requests can be on this machine, just now."""
    connect = import_module("http.client").HTTPConnection

    def send(arguments: list[str]) -> None:
        host, count, interval = arguments[0], int(arguments[1]), float(arguments[2])
        connection = connect(host)
        started = time.monotonic()
        for number in range(count):
            time.sleep(max(0, started + number * interval - time.monotonic()))
            connection.request("GET", "/metronome")
            connection.getresponse().read()
        _print({"total": count})

    return send


SUBJECTS: dict[str, Callable[[], Work]] = {
    "usp": load_usp,
    "scrapy": load_scrapy,
    "tidings": load_tidings,
    "metronome": load_metronome,
}


def read_peak() -> int:
    """The most memory that this process ever had, in bytes.

    Not from `getrusage`: there a child begins with the peak of the parent that it was forked from.
    """
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _print(values: dict[str, float]) -> None:
    print(json.dumps(values), flush=True)


def _main() -> None:
    # Whatever becomes of the parent, this process ends.
    signal.alarm(LONGEST_SECONDS)
    name, *arguments = sys.argv[1:]
    work = SUBJECTS[name]()
    imports, started = time.process_time(), time.monotonic()
    work(arguments)
    _print({"imports": imports, "wall": time.monotonic() - started, "peak": read_peak()})


if __name__ == "__main__":
    _main()
