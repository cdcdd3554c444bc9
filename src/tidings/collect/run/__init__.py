"""The built-in runner: discovers and collects in this process, on the writer that n8n drives over the API."""
