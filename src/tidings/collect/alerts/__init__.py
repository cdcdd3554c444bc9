"""The conditions of collect that people are notified of: their kinds, what each says, and the monitor."""
