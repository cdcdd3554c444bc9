"""Page check before sending: due pages are fetched, and those that should not be announced are held back."""
