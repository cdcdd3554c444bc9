"""`tidings collect failed` and `retry`: candidates that were given up."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.collect.run import require_platform
from tidings.cli.language import label, say, translate
from tidings.cli.options import PlatformOption
from tidings.cli.output import format_time
from tidings.cli.session import Session, answering
from tidings.core.clock import to_text

if TYPE_CHECKING:
    from tidings.collect.status.queries import ListedCandidate


@answering
async def failed(
    session: Session,
    platform: PlatformOption = None,
    limit: Annotated[int, typer.Option("--limit", help="How many, the latest first.", min=1, max=100_000)] = 50,
) -> None:
    """List the candidates that were given up, and why."""
    from tidings.collect.status.queries import list_failed

    require_platform(platform)
    installation = await session.open()
    async with installation.database.read() as connection:
        found = await list_failed(connection, platform=platform, limit=limit)
    session.answer_table(
        {"failed": [_describe(each) for each in found]},
        (say("platform"), say("note"), say("failed"), say("attempts"), say("reason")),
        [
            (
                each.platform,
                each.note_id,
                format_time(each.updated_at),
                f"{each.retry_count:,}",
                label(str(each.code), translate(each.message or "")),
            )
            for each in found
        ],
        empty=say("No candidate was given up."),
    )


def _describe(candidate: "ListedCandidate") -> dict[str, Any]:
    names = ("platform", "note_id", "note_url", "title", "retry_count", "code", "message")
    return {**{name: getattr(candidate, name) for name in names}, "failed_at": to_text(candidate.updated_at)}


@answering
async def retry(session: Session, platform: PlatformOption = None) -> None:
    """Try again the candidates that were given up.

    They are due at once, as if they had never failed.
    """
    require_platform(platform)
    installation = await session.open()
    count = await installation.collect.writer.corrections.requeue(platform)
    session.answer({"requeued": count}, "{count} {count:candidate is|candidates are} due again.", count=count)
