"""The security audit as JSON, for cron and CI: `passed`, and one entry a check. Exit code 0 where it passed, else 1.

The same as `tidings audit --json`, with the same options; it needs the Python that Tidings is installed in.
"""

import sys

import typer

from tidings.cli.operations.audit import audit


def main() -> None:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(audit)
    app(["--json", *sys.argv[1:]])


if __name__ == "__main__":
    main()
