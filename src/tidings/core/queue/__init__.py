"""Work in this process and work that is due: one job per key at a time."""
