"""The built-in runner of collect, and its jobs."""
