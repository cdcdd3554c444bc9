"""The platforms that notes come from, each behind the protocol in `protocol`. Nothing here writes to a database."""
