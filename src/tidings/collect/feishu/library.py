"""The parts of lark-oapi that the mirror uses, and no more. The package imports all its 10,000 modules at once, which
takes 3 seconds and 170 MB; the few that are needed take a fifth of a second and 20 MB. They are loaded when the first
request is made, so that who does not use Feishu pays nothing.
"""

import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from tidings.collect.feishu.answers import FeishuError, Rule, Verdict
from tidings.collect.feishu.target import FeishuTarget

_PACKAGE: Final = "lark_oapi"
_BITABLE: Final = f"{_PACKAGE}.api.bitable.v1"
_AUTH: Final = f"{_PACKAGE}.api.auth.v3"
_MISSING: Final = Rule(Verdict.BLOCKED, "lark-oapi is not installed", "Install it: pip install 'tidings[feishu]'")
_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Library:
    """lark-oapi, set up for one target: the requests that it makes, and the way they are sent."""

    bitable: ModuleType
    auth: ModuleType
    core: ModuleType
    http: ModuleType
    tokens: ModuleType
    config: Any

    async def send(self, request: Any, *, token: str = "") -> Any:
        """The raw answer: what its resources make of one is lost where it cannot be read, with its HTTP status."""
        option = self.core.RequestOption()
        option.tenant_access_token = token
        self.tokens.verify(self.config, request, option)
        return await self.http.Transport.aexecute(self.config, request, option)


def load_library(target: FeishuTarget, *, timeout: timedelta) -> Library:
    """Blocks for a moment, the first time. Raises FeishuError where the package is missing."""
    with _loading, _bare_packages():
        core = importlib.import_module(f"{_PACKAGE}.core.model")
        http = importlib.import_module(f"{_PACKAGE}.core.http")
        tokens = importlib.import_module(f"{_PACKAGE}.core.token")
        bitable = importlib.import_module(f"{_BITABLE}.model")
        auth = importlib.import_module(f"{_AUTH}.model")
    # It writes to the standard output, past our redaction.
    logging.getLogger("Lark").handlers.clear()
    config = core.Config()
    config.app_id, config.app_secret = target.app_id, target.app_secret.reveal()
    config.domain, config.timeout = target.domain, timeout.total_seconds()
    # Its own way to a token is a request that blocks the event loop, and a cache that all of the process shares.
    config.enable_set_token = True
    return Library(bitable=bitable, auth=auth, core=core, http=http, tokens=tokens, config=config)


@contextmanager
def _bare_packages() -> Iterator[None]:
    """Let modules be imported without what their packages import on their own. Afterwards all is as it was."""
    if _PACKAGE in sys.modules:
        yield
        return
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FeishuError(_MISSING)
    folder = spec.submodule_search_locations[0]
    bare = {_PACKAGE: folder, f"{_PACKAGE}.api": f"{folder}/api"}
    for name, path in bare.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [path]
    try:
        yield
    finally:
        for name in bare:
            del sys.modules[name]
