"""From a site's sitemap to the search engines."""
