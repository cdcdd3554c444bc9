"""Pages of a sitemap, and the rules that decide which of them are due."""
