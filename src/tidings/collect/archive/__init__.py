"""Collected notes for their readers: list, search and export. Reads only; `write` stores and deletes notes."""
