"""The reading half of collect: the crawler, the platforms and the cookie pool. It never writes to the database."""
