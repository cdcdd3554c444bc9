"""`tidings collect status`: candidates, executions, cookies, the mirror, and what needs a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidings.cli.language import say, say_word, translate
from tidings.cli.output import escape, format_time, make_console, make_execution_table, make_table, print_json
from tidings.cli.session import Session, answering

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.collect.feishu.mirror import MirrorStatus
    from tidings.collect.status.queries import PlatformPause
    from tidings.collect.status.report import CollectStatus


@answering
async def status(session: Session) -> None:
    """Show candidates, executions, cookies, mirror and alerts."""
    session.warn_of_mirror()
    installation = await session.open()
    shown = await installation.collect.status.read()
    if session.as_json:
        from tidings.web.models.collect import CollectStatusAnswer

        print_json(CollectStatusAnswer.model_validate(shown).to_json())
    else:
        _print(shown, console=make_console())


def _print(shown: "CollectStatus", *, console: "Console") -> None:
    _print_candidates(shown, console=console)
    if shown.executions:
        console.print()
        console.print(make_execution_table(shown.executions, say("workflow"), say("done"), say("failed")))
    enabled = sum(each.enabled for each in shown.keywords)
    paused = len(shown.keywords) - enabled
    console.print()
    console.print(say("Keywords: {watched} watched, {paused} paused.", watched=enabled, paused=paused))
    usable = ", ".join(
        say("{platform} {usable} of {total}", platform=escape(platform), usable=count["usable"], total=count["total"])
        for platform, count in shown.cookie_counts.items()
    )
    console.print(say("Cookies that can be used: {names}.", names=usable or say("none")))
    _print_comments(shown, console=console)
    print_pauses(shown.pauses, console=console)
    if shown.mirror is not None:
        console.print(say("Feishu: {text}.", text=_write_mirror(shown.mirror)))
    if shown.alerts:
        console.print()
        console.print(say("Needs a person:"))
    for each in shown.alerts:
        console.print(f"  [red]{each.kind}[/] {escape(each.subject)}: {escape(translate(each.reason))}")
        console.print(f"    {escape(translate(each.action))}")


def print_pauses(pauses: "Sequence[PlatformPause]", *, console: "Console") -> None:
    """A line for each paused platform, and how to end its pause."""
    for pause in pauses:
        name = escape(pause.platform)
        until, message = format_time(pause.until), escape(translate(pause.message))
        console.print(
            say("[yellow]{name} is paused[/] until {until}: {message}.", name=name, until=until, message=message)
        )
        console.print(
            say("  Its candidates wait uncounted. `tidings collect resume {name}` ends the pause now.", name=name)
        )


def _print_candidates(shown: "CollectStatus", *, console: "Console") -> None:
    from tidings.collect.tables import CandidateStatus

    if not shown.candidates:
        console.print(say("There are no candidates yet."))
        return
    statuses = [say_word(status.value) for status in CandidateStatus]
    table = make_table(say("platform"), *statuses, right=statuses)
    for platform, counts in shown.candidates.items():
        table.add_row(escape(platform), *(f"{counts[status]:,}" for status in CandidateStatus))
    console.print(table)


def _print_comments(shown: "CollectStatus", *, console: "Console") -> None:
    """A line for each platform with comments that are not all read."""
    from tidings.collect.tables import StageStatus

    for platform, counts in shown.comments.items():
        waiting = counts.get(StageStatus.PENDING, 0) + counts.get(StageStatus.PROCESSING, 0)
        line = say(
            "Comments of {platform}: {waiting} {waiting:note waits|notes wait} for theirs, {failed} failed.",
            platform=escape(platform),
            waiting=waiting,
            failed=counts.get(StageStatus.FAILED, 0),
        )
        console.print(line, highlight=False)


def _write_mirror(mirror: "MirrorStatus") -> str:
    waiting = (
        say("{count} {count:change waits|changes wait}", count=mirror.waiting)
        if mirror.waiting
        else say("no change waits")
    )
    since = "" if mirror.oldest is None else say(", the oldest since {time}", time=format_time(mirror.oldest))
    refused = say("; {count} {count:row was|rows were} refused", count=mirror.refused) if mirror.refused else ""
    error = say("; last error: {error}", error=escape(translate(mirror.last_error))) if mirror.last_error else ""
    return waiting + since + refused + error
