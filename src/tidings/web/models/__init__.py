"""Request and answer models of the API."""
