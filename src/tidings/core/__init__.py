"""The code that both pipelines share. It imports neither."""
