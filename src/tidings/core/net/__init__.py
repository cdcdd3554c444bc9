"""HTTP to the outside: the guarded client, addresses, redirects, names, pace and retry rules."""
