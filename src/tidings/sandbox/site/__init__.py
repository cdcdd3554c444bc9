"""The web site that Tidings announces: pages, sitemaps, robots.txt and the IndexNow key file."""
