"""Sitemaps: `crawl` fetches a site's files, `reader` reads the bytes of one file without any network."""
