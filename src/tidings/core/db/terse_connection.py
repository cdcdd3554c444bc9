"""psycopg's connection, whose errors show no values. SQLAlchemy's `hide_parameters` hides those of the statement, but
PostgreSQL repeats them below its message: `DETAIL:  Failing row contains (…)`. Only an installation on PostgreSQL loads
this module.
"""

from typing import Any, TypeVar

from psycopg import AsyncConnection, Error
from psycopg.abc import PQGen

_Result = TypeVar("_Result")


class TerseConnection(AsyncConnection[Any]):
    """Keeps the first line of each error of the server."""

    async def wait(self, gen: PQGen[_Result], *args: Any, **options: Any) -> _Result:
        try:
            return await super().wait(gen, *args, **options)
        except Error as error:
            error.args = (str(error).partition("\n")[0],)
            raise
