"""The second pipeline: from watched keywords and media platforms to the tables."""
