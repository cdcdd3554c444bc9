"""Google: signing in with a service account, sitemaps in Search Console, and the Indexing API."""
