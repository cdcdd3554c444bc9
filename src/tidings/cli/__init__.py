"""The command line: reads what was typed, calls one function, shows the answer. It decides nothing itself."""

from tidings.cli.main import main

__all__ = ["main"]
