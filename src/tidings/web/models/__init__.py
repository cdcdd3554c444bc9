"""Request and answer shapes of the API, one file per group of routes."""
