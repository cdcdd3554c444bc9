"""The environment → one frozen Settings. The only reader of the environment.

`settings` has Settings and reads it, with `collect` and `site` for their parts. `variables` reads single variables.
"""
