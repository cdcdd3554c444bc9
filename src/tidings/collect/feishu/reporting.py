"""What is kept and told of how a table of the mirror fares: its last trouble for the status, and the conditions that a
person is told of. When something counts as trouble is decided in `delivery` and `sending`.
"""

from datetime import timedelta
from typing import Any, Final

from tidings.collect.alert_kinds import CollectAlert
from tidings.collect.feishu.answers import FeishuError, Verdict
from tidings.collect.feishu.ledger import Ledger
from tidings.collect.feishu.tables import mirror_state
from tidings.core.alerts import Alert, Alerts
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database

# An outage is told once it has lasted so long; what needs a person is told at once.
TOLD_AFTER: Final = timedelta(minutes=30)

_PASSING: Final = (Verdict.RETRY, Verdict.REFRESH)


class Reporter:
    """Every write raises ExecutionLostError."""

    def __init__(self, database: Database, *, alerts: Alerts, clock: Clock) -> None:
        self._database = database
        self._alerts = alerts
        self._clock = clock

    async def note(self, ledger: Ledger, error: FeishuError | None) -> None:
        """Keep how a round went, and tell people where they are needed."""
        name = ledger.table_name
        values: dict[str, Any] = {"last_error": None}
        if error is not None:
            values = {"last_error": str(error), "failed_at": to_milliseconds(self._clock.now())}
        new = {"table_name": name, "target": "", "owner": "", "signature": "", **values}
        statement = self._database.insert(mirror_state).values(new)
        async with ledger.guard() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["table_name"], set_=values))
            refused = await ledger.find_refused(connection)
            if error is not None:
                alert = Alert(CollectAlert.MIRROR_FAILED, name, str(error), error.action)
                after = TOLD_AFTER if error.verdict in _PASSING else timedelta(0)
                await self._alerts.raise_alert(connection, alert, after=after)
            elif refused is not None:
                count, reason, action = refused
                await self._alerts.raise_alert(
                    connection, Alert(CollectAlert.MIRROR_FAILED, name, reason, action, count)
                )
            else:
                await self._alerts.resolve_alert(connection, CollectAlert.MIRROR_FAILED, name)
        self._alerts.wake()

    async def note_rival(self, ledger: Ledger, error: FeishuError | None) -> None:
        """Tell that two processes mirror a table to two places, or that they no longer do.

        Under a name of its own: the table itself may fare well, and says so after each round of the other process.
        """
        subject = f"{ledger.table_name} in two places"
        async with ledger.guard() as connection:
            if error is None:
                await self._alerts.resolve_alert(connection, CollectAlert.MIRROR_FAILED, subject)
            else:
                await self._alerts.raise_alert(
                    connection, Alert(CollectAlert.MIRROR_FAILED, subject, str(error), error.action)
                )
        self._alerts.wake()
