"""Routes of collect: the crawl API, the writer, notes and the overview."""
