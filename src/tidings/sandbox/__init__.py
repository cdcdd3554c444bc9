"""Stand-ins for the services that Tidings talks to, on loopback only. They answer like the real ones, fail on request,
and record every request. The sandbox imports nothing else of Tidings.
"""
