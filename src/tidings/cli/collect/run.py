"""`tidings collect discover`, `run` and `recover`: the workflows of collect, once and now. A service repeats them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidings.cli.language import say, translate
from tidings.cli.options import PlatformArgument, PlatformOption, VerboseOption
from tidings.cli.output import make_console, print_json
from tidings.cli.session import Exit, Session, answering, deliver_alerts, fail, stop_on_signals
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.collect.alerts.monitor import CollectMonitor
    from tidings.collect.run.report import EndedExecution
    from tidings.collect.run.runner import CollectRunner
    from tidings.wiring.installation import Installation


@answering
async def discover(session: Session, verbose: VerboseOption = False) -> Exit:
    """Search every watched keyword now. New notes become candidates.

    Exit code 0: all searched. 1: some could not be searched. 2: nothing is watched.
    """
    from tidings.cli.collect.report import print_discovery, show_work

    async with _open_workbench(session, verbose=verbose) as bench:
        with stop_on_signals(bench.stop), show_work(enabled=session.is_watched) as view:
            report = await bench.runner.discover(bench.stop, on_progress=view.show_search)
        if report.ended is None:
            fail("no keyword is watched; `tidings collect keywords add PLATFORM KEYWORD` adds one")
        if report.ended.status == "running":
            fail(translate(report.ended.reason or "") or say("it is already running"), code=Exit.FAILED)
        if session.as_json:
            print_json(report.to_json())
        else:
            print_discovery(report, console=make_console())
        return await bench.end([report.ended])


@answering
async def run(session: Session, platform: PlatformOption = None, verbose: VerboseOption = False) -> Exit:
    """Collect the notes of all due candidates now.

    Exit code 0: all collected. 1: some failed or had to be left; they are tried again. 2: bad input.
    """
    from tidings.cli.collect.report import print_collections, show_work

    require_platform(platform)
    async with _open_workbench(session, verbose=verbose) as bench:
        with stop_on_signals(bench.stop), show_work(enabled=session.is_watched) as view:
            reports = await bench.runner.collect(bench.stop, platform=platform, on_progress=view.show_settled)
        pauses = await bench.installation.collect.writer.pauses.list_all()
        if session.as_json:
            from tidings.web.models.collect import PauseDocument

            shown = [PauseDocument.model_validate(pause).to_json() for pause in pauses]
            print_json({"platforms": [report.to_json() for report in reports], "pauses": shown})
        else:
            print_collections(reports, pauses, console=make_console())
        return await bench.end([report.ended for report in reports])


@answering
async def recover(session: Session) -> None:
    """Release the locks of dead executions. A service does this every 15 minutes."""
    from tidings.collect.alerts.monitor import WorkflowAlerts

    installation = await session.open()
    recovered = await installation.collect.writer.recover()
    await WorkflowAlerts(installation.database, installation.alerts).record_recovery()
    session.answer(
        asdict(recovered),
        "Ended {executions} executions and released {records} records; {failed} of them had failed too often and "
        "were given up.",
        executions=len(recovered.executions),
        records=recovered.records,
        failed=recovered.failed,
    )


@answering
async def resume(session: Session, platform: PlatformArgument) -> None:
    """End the pause of a platform that was down or blocked this machine."""
    require_platform(platform)
    installation = await session.open()
    is_ended = await installation.collect.writer.pauses.resume(platform)
    text = say("Resumed {platform}.", platform=platform)
    if not is_ended:
        text = say("{platform} is not paused.", platform=platform)
    session.answer({"resumed": is_ended}, text)


def require_platform(platform: str | None) -> None:
    """End the command if a platform is named that does not exist."""
    from tidings.collect.crawl.platforms.registry import check_platform
    from tidings.collect.errors import CrawlError

    try:
        if platform is not None:
            check_platform(platform)
    except CrawlError as error:
        fail(translate(error.message))


@dataclass(frozen=True, slots=True)
class _Workbench:
    """The parts that a workflow needs in this process."""

    installation: "Installation"
    runner: "CollectRunner"
    monitor: "CollectMonitor"
    stop: Stop

    async def end(self, ended: "Sequence[EndedExecution]") -> Exit:
        """Raise and deliver alerts, since no service may be running."""
        for each in ended:
            await self.monitor.record_end(each)
        await self.monitor.check()
        await deliver_alerts(self.installation)
        return Exit.DONE if all(each.status == "succeeded" for each in ended) else Exit.FAILED


@asynccontextmanager
async def _open_workbench(session: Session, *, verbose: bool) -> AsyncIterator[_Workbench]:
    from tidings.wiring.crawl import make_collect_monitor, make_collect_runner, open_crawler

    installation = await session.open(verbose=verbose)
    async with open_crawler(installation) as crawler:
        yield _Workbench(
            installation,
            make_collect_runner(installation, crawler=crawler),
            make_collect_monitor(installation, crawler=crawler),
            Stop(clock=installation.clock),
        )
