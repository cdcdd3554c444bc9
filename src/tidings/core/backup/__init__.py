"""Logical backup and restore of the whole database."""
