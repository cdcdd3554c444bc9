"""Structured logs: the logger, lines, and the request id."""
