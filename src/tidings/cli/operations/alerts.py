"""`tidings alerts`: open alerts, and a test of their destinations."""

import asyncio
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import label, say, translate
from tidings.cli.options import make_group
from tidings.cli.output import format_time
from tidings.cli.session import ALERT_PATIENCE, Exit, Session, answering, fail

if TYPE_CHECKING:
    from tidings.core.alerts.events import AlertEvent
    from tidings.wiring.installation import Installation

app = make_group("Show alerts, and try their destinations.")


@app.command("list")
@answering
async def list_alerts(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 100,
) -> None:
    """List open alerts, the newest first."""
    from tidings.web.models.announce_answers import LeveledAlertDocument

    alerts = (await session.open()).alerts
    found = [(alerts.find_level(each.kind), each) for each in await alerts.list_open(limit=limit)]
    session.answer_table(
        {"alerts": [LeveledAlertDocument(level=level, **asdict(each)).to_json() for level, each in found]},
        (say("level"), say("kind"), say("subject"), say("reason"), say("since")),
        [
            (level.value, each.kind, each.subject, translate(each.reason), format_time(each.since))
            for level, each in found
        ],
        empty=say("No alert is open."),
    )


@app.command("test")
@answering
async def try_destinations(session: Session) -> Exit:
    """Send a test message to every destination.

    Exit code 0: all accepted it. 1: one did not. 2: there is none.
    """
    installation = await session.open(leaves_nothing=True)
    if not installation.destinations:
        fail("no destination is set: TIDINGS_ALERT_URLS and TIDINGS_WEBHOOK_URL name them")
    from tidings.core.alerts.delivery import try_sending

    event, destinations = _make_event(installation), installation.destinations
    failures = await asyncio.gather(*(try_sending(each, event, within=ALERT_PATIENCE) for each in destinations))
    problems = [(each.name, failure and failure.reason) for each, failure in zip(destinations, failures, strict=True)]
    lines = [
        label(name, say("failed: {reason}", reason=translate(problem)) if problem else say("accepted"))
        for name, problem in problems
    ]
    document = {"destinations": [{"name": name, "problem": problem} for name, problem in problems]}
    session.answer(document, "\n".join(lines))
    return Exit.FAILED if any(failures) else Exit.DONE


def _make_event(installation: "Installation") -> "AlertEvent":
    from tidings.core.alerts.events import AlertEvent, EventType
    from tidings.core.alerts.kinds import AlertLevel

    now = installation.clock.now()
    return AlertEvent(
        id=f"test-{secrets.token_hex(8)}",
        type=EventType.FIRED,
        kind="test",
        level=AlertLevel.P2,
        title=say("Test"),
        subject="tidings alerts test",
        reason=say("somebody tries whether alerts arrive"),
        action=say("Nothing is wrong, and nothing is to be done."),
        count=None,
        since=now,
        occurred_at=now,
        language=installation.settings.language,
    )
