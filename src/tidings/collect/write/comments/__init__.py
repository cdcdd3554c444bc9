"""Comments of notes: which are wanted, the leases of their threads, and what is stored of each page."""
