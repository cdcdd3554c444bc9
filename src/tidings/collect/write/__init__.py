"""The writing half of collect: locks, leases and idempotent writes. `Writer` is its entry point. The crawl API never
imports this package."""
