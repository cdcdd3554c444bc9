"""A site: its settings and their rules, its table, its JSON document, and the check before anything is sent."""
