"""Cookies as the crawler reads them: the table, the states, and the pool that leases them."""
