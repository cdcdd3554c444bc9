"""The dashboard: server-rendered pages in English and Chinese. Pages call the services that the API calls."""
