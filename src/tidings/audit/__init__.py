"""The security audit: does what must be secret lie anywhere in clear, and is it well locked away? It looks, and changes
nothing. It stands beside `web`, above both pipelines: it knows their tables by name, and is given everything else.
"""
