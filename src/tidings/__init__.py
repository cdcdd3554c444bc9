"""Tidings gathers content and announces it."""

__version__ = "0.1.0"
