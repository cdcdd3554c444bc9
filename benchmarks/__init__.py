"""What Tidings costs, measured against other readers of sitemaps. `README.md` says what is measured, and how."""
