"""Stand-ins for what Tidings talks to, on loopback only: they answer as the real ones do, fail on request and record
everything. Imports nothing of the rest of Tidings."""

from tidings.sandbox.bundle import Addresses, Sandbox, serve_sandbox
from tidings.sandbox.documents import Layout
from tidings.sandbox.faults import Fault, FaultKind
from tidings.sandbox.indexnow import KeyCheck, SandboxEngine
from tidings.sandbox.record import Recorded
from tidings.sandbox.site import SandboxSite

__all__ = [
    "Addresses",
    "Fault",
    "FaultKind",
    "KeyCheck",
    "Layout",
    "Recorded",
    "Sandbox",
    "SandboxEngine",
    "SandboxSite",
    "serve_sandbox",
]
