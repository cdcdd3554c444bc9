"""The security audit: searches an installation for secrets in clear and checks how well it is protected. Read-only.
It knows the tables of both pipelines by name, and gets everything else from its caller.
"""
