"""Connections to PostgreSQL: they notice a server that vanished, and their errors show no values. Only an installation
on PostgreSQL loads this module.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection, Error
from psycopg.abc import PQGen
from sqlalchemy.engine import URL

# A machine or network that vanishes says nothing: without these limits a statement would wait for a quarter of an hour,
# and an idle connection for hours. libpq's names; all in seconds but the last, in milliseconds.
_LIMITS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

_Result = TypeVar("_Result")


class TerseConnection(AsyncConnection[Any]):
    """Keeps the first line of each error of the server. SQLAlchemy's `hide_parameters` hides the values of a statement,
    but PostgreSQL repeats them below its message: `DETAIL:  Failing row contains (…)`.
    """

    async def wait(self, gen: PQGen[_Result], *args: Any, **options: Any) -> _Result:
        try:
            return await super().wait(gen, *args, **options)
        except Error as error:
            error.args = (str(error).partition("\n")[0],)
            raise


def list_limits(url: URL) -> Mapping[str, Any]:
    """The limits, but for those that the URL sets itself."""
    return {name: value for name, value in _LIMITS.items() if name not in url.query}


async def open_listener(url: URL) -> AsyncConnection[Any]:
    """A connection of its own, for LISTEN."""
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return await AsyncConnection.connect(address, autocommit=True, **list_limits(url))
