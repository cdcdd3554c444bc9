"""The state of collect, read from its tables, for commands, API, dashboard and monitor. Writes nothing."""
