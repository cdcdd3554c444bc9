"""Layers around every route: request context, authentication, input checks, streams."""
