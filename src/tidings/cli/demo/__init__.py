"""`tidings demo`: the whole job on this machine, against the sandbox."""
