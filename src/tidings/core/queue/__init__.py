"""Jobs on one machine or many. A job is a wake-up call: the tables say what is due, and a tick derives jobs from them.

Begin with `dispatcher`, the port and its values. `embedded` is the adapter for SQLite; `postgresql` is the one for
PostgreSQL, and `procrastinate_worker` does its jobs. `tick` submits what is due, `periodic` has the jobs that repeat,
`workers` the table of who takes jobs.
"""
