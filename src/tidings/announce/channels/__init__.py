"""The channels that pages are announced on: one sender, a protocol for each, and quotas where there are some."""
