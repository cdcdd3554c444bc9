"""Layers around every route: request context, authentication, body limits, streams."""
