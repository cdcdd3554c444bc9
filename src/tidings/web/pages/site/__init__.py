"""Pages of one site: status, executions, failed URLs, settings, the first site, live progress."""
