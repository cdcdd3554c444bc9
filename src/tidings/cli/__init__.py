"""The command line: reads arguments, calls one function, shows its answer. It decides nothing itself."""

from tidings.cli.main import main

__all__ = ["main"]
