"""The open web as a platform: feeds are searched, and any page that robots.txt allows is read as a note."""
