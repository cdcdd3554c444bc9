"""Stand-ins for the services that Tidings talks to, on loopback only. They answer like the real ones, fail on request,
and record every request. The sandbox imports nothing else of Tidings.
"""

from tidings.sandbox.bundle import Addresses, Sandbox, serve_sandbox
from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN, SandboxBaidu
from tidings.sandbox.engines.bing import DEMO_BING_KEY, ErrorStyle, SandboxBing, ThrottleKind
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.engines.indexnow import KeyCheck, SandboxEngine
from tidings.sandbox.site.documents import Layout
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

__all__ = [
    "DEMO_BAIDU_TOKEN",
    "DEMO_BING_KEY",
    "Addresses",
    "ErrorStyle",
    "Fault",
    "FaultKind",
    "KeyCheck",
    "Layout",
    "Recorded",
    "Sandbox",
    "SandboxBaidu",
    "SandboxBing",
    "SandboxEngine",
    "SandboxGoogle",
    "SandboxSite",
    "ThrottleKind",
    "serve_sandbox",
]
