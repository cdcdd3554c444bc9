"""The channels that pages are announced on: protocols, quotas and ranking of IndexNow engines and Bing."""
