"""Sitemaps: what a site lists, read from bytes (no network in the reader) and crawled over HTTP."""
