"""The channels to search engines: one sender for all, a protocol for each, and quotas."""
