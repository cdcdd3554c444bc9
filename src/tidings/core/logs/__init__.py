"""Structured logs.

structlog loads Rich and Twisted if they are installed, for tracebacks that `lines` renders in another way. Here it is
imported as if they were missing, which saves each command 60 ms of CPU and 11 MB.
"""

import sys

_UNUSED = [name for name in ("rich", "twisted") if name not in sys.modules]

# With None, Python raises ImportError for this module.
for _name in _UNUSED:
    sys.modules[_name] = None  # type: ignore[assignment]
try:
    import structlog  # noqa: F401 - the other modules of this package find it loaded
finally:
    for _name in _UNUSED:
        del sys.modules[_name]
