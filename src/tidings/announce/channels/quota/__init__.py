"""Channels with a daily quota: their kinds, quotas, choice of pages and status."""
