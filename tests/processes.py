"""Processes that tests start. They are forked from one that has loaded Tidings, so they start at once."""

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.conftest", "sqlalchemy.dialects.postgresql.psycopg", "psycopg_binary"])
