"""Jobs on one machine or many. A job is a wake-up call: the tables say what is due, and a tick derives jobs from them.

`dispatcher` has the port and its values, `embedded` the adapter for SQLite, `tick` the loop that submits what is due,
`periodic` the jobs that repeat.
"""
