"""Channels that take only so many pages a day: their kinds, quotas, choice of pages and status."""
