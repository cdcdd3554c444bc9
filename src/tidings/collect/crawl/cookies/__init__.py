"""The reading half of the cookie pool: the table, the states, and the pool that lends cookies."""
