"""Where the mirror stands: the app, the base and its tables, and the server that is asked. Plain values.

ValueError
└── FeishuTargetError    the mirror cannot be used as it is set up; the message holds no secret
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tidings.collect.tables import candidates, sources
from tidings.core.secrets.secret import Secret

FEISHU_DOMAIN: Final = "https://open.feishu.cn"
LARK_DOMAIN: Final = "https://open.larksuite.com"
MIRRORED: Final = (candidates.name, sources.name)

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class FeishuTargetError(ValueError):
    """The mirror cannot be used as it is set up."""


@dataclass(frozen=True, slots=True)
class FeishuTarget:
    """One base. `tables` names the table of the base for each of ours that is mirrored. Raises FeishuTargetError."""

    app_id: str
    app_secret: Secret
    app_token: str
    tables: Mapping[str, str] = field(hash=False)
    domain: str = FEISHU_DOMAIN

    def __post_init__(self) -> None:
        if not (self.app_id and self.app_secret and self.app_token):
            raise FeishuTargetError("the app's id, its secret and the base's token are needed")
        _check_domain(self.domain)
        _check_tables(self.tables)

    def fingerprint(self, table_name: str) -> str:
        """Tells whether a table is still mirrored to the same place; shows nothing of it."""
        place = "\n".join((self.domain, self.app_token, self.tables[table_name]))
        return hashlib.blake2b(place.encode(), digest_size=16, person=b"tidings.feishu").hexdigest()


def _check_domain(domain: str) -> None:
    split = urlsplit(domain)
    safe = split.scheme == "https" or (split.scheme == "http" and split.hostname in _LOOPBACK)
    # The secret is sent there: to a host that is named plainly, and never in clear over a network.
    if not safe or not split.hostname or "@" in split.netloc or domain != f"{split.scheme}://{split.netloc}":
        raise FeishuTargetError(f"the domain is the https:// origin of the server, such as {FEISHU_DOMAIN}")


def _check_tables(tables: Mapping[str, str]) -> None:
    if not tables or any(name not in MIRRORED or not table_id for name, table_id in tables.items()):
        raise FeishuTargetError(f"tables: each of {', '.join(MIRRORED)} that is mirrored, with its table in the base")
    if len(set(tables.values())) < len(tables):
        raise FeishuTargetError("two tables cannot be mirrored to the same one")
