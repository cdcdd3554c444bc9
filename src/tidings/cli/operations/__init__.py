"""The commands for running an installation: backup, database, keys, tokens, alerts, audit."""
