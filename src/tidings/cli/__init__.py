"""The command line: reads arguments, calls a service, shows the result. It has no logic of its own."""

from tidings.cli.main import main

__all__ = ["main"]
