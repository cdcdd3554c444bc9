"""The composition root: builds every service from Settings; nothing else does.

`opening` opens what must be closed again. `installation` builds the services of core and announce; `alerts` their
destinations; `ticker` what is due. `collect` and `crawl` build the services of collect: `tidings announce` and
`tidings run` never import them.
"""

from tidings.wiring.addresses import list_own_hosts
from tidings.wiring.installation import Installation
from tidings.wiring.opening import check_stored_secrets, load_tables, open_installation, prepare_tables

__all__ = [
    "Installation",
    "check_stored_secrets",
    "list_own_hosts",
    "load_tables",
    "open_installation",
    "prepare_tables",
]
