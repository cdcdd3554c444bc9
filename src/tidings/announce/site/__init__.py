"""A site: its rules, its table, its JSON document, and the check of its key file."""
