"""The HTTP service. Only this package imports FastAPI; commands other than `serve` never load it."""
