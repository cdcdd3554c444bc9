"""The reading half of collect: platforms, cookies on loan, and the crawler. It never writes to the database."""
