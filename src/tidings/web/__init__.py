"""The HTTP service. The only package that knows FastAPI; plain commands never load it."""
