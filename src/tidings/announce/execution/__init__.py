"""One execution for one site: plan, send, report, alerts."""
