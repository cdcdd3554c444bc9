"""Routes of announce: sites, their executions, ledger and status."""
