"""`tidings collect`: the workflows that gather content, done once and now. A running service does them by itself."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.announce.announce import JsonOption, VerboseOption, deliver_alerts
from tidings.cli.announce.report import make_console
from tidings.cli.collect import keywords
from tidings.cli.collect.keywords import require_platform
from tidings.cli.collect.report import print_collections, print_discovery, print_failed, show_work
from tidings.cli.collect.status import print_standing, read_standing
from tidings.cli.session import Exit, fail, is_terminal, load_settings, open_session, run, stop_on_signals
from tidings.collect.alerts import record_end
from tidings.collect.feishu.mirror import FeishuMirror, MirrorResult
from tidings.collect.run.report import EndedExecution
from tidings.collect.status import FailedCandidate, list_failed
from tidings.collect.write import Recovered
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop
from tidings.settings import Settings
from tidings.wiring import Installation, make_collect_monitor, make_collect_runner, open_crawler

if TYPE_CHECKING:
    # What crawls is loaded by the commands that do.
    from tidings.collect.alerts import CollectMonitor
    from tidings.collect.run.runner import CollectRunner

app = typer.Typer(
    help="Gather content from media platforms: what is watched, found and collected.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(keywords.app, name="keywords")

PlatformOption = Annotated[str | None, typer.Option("--platform", help="Only of this platform, such as bilibili.")]


@app.command("discover")
def discover(as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Search for every watched keyword now; what is new becomes a candidate.

    Exit code 0: all were searched. 1: some could not be. 2: nothing is watched.
    """
    settings = load_settings()

    async def work() -> Exit:
        async with _open_bench(settings, verbose=verbose) as bench:
            with stop_on_signals(bench.stop), show_work(enabled=_is_watched(as_json, verbose)) as view:
                report = await bench.runner.discover(bench.stop, on_progress=view.record_search)
            if report.ended is None:
                fail("nothing is watched; `tidings collect keywords add PLATFORM KEYWORD` changes that")
            if report.ended.status is ExecutionStatus.RUNNING:
                fail(report.ended.reason or "it is already running", code=Exit.FAILED)
            if as_json:
                typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
            else:
                print_discovery(report, console=make_console())
            return await bench.end([report.ended])

    raise typer.Exit(run(work))


@app.command("run")
def run_collect(platform: PlatformOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Read the notes of all candidates that are due now, every platform at the same time.

    Exit code 0: all collected. 1: some failed or had to be left; they are tried again. 2: bad input.
    """
    settings = load_settings()
    if platform is not None:
        require_platform(platform)

    async def work() -> Exit:
        async with _open_bench(settings, verbose=verbose) as bench:
            with stop_on_signals(bench.stop), show_work(enabled=_is_watched(as_json, verbose)) as view:
                reports = await bench.runner.collect(bench.stop, platform=platform, on_progress=view.note_settled)
            if as_json:
                typer.echo(json.dumps({"platforms": [report.to_json() for report in reports]}, ensure_ascii=False))
            else:
                print_collections(reports, console=make_console())
            return await bench.end([report.ended for report in reports])

    raise typer.Exit(run(work))


@app.command("recover")
def recover(as_json: JsonOption = False) -> None:
    """Free what dead executions had locked. A running service does this every quarter of an hour."""
    settings = load_settings()

    async def work() -> Recovered:
        async with open_session(settings) as installation:
            freed = await installation.writer.recover()
            await record_end(
                "recover", ExecutionStatus.SUCCEEDED, database=installation.database, alerts=installation.alerts
            )
            return freed

    recovered = run(work)
    if as_json:
        typer.echo(json.dumps(asdict(recovered)))
        return
    typer.echo(
        f"{len(recovered.executions):,} executions were ended, {recovered.records:,} records freed; "
        f"{recovered.failed:,} of these had failed too often and were given up."
    )


@app.command("status")
def status(as_json: JsonOption = False) -> None:
    """Show candidates by platform, the last executions, cookies, the mirror, and what needs a person."""
    settings = load_settings()

    async def work() -> None:
        async with open_session(settings) as installation:
            standing = await read_standing(installation)
        if as_json:
            typer.echo(json.dumps(standing.to_json(), ensure_ascii=False))
        else:
            print_standing(standing, console=make_console())

    run(work)


@app.command("failed")
def failed(
    platform: PlatformOption = None,
    limit: Annotated[
        int, typer.Option("--limit", help="How many are shown, the latest first.", min=1, max=100_000)
    ] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the candidates that were given up, and why."""
    settings = load_settings()
    if platform is not None:
        require_platform(platform)

    async def work() -> list[FailedCandidate]:
        async with open_session(settings) as installation, installation.database.read() as connection:
            return await list_failed(connection, platform=platform, limit=limit)

    found = run(work)
    if as_json:
        rows = [asdict(each) | {"failed_at": to_text(each.failed_at)} for each in found]
        typer.echo(json.dumps({"failed": rows}, ensure_ascii=False))
    else:
        print_failed(found, console=make_console())


@app.command("retry")
def retry(platform: PlatformOption = None, as_json: JsonOption = False) -> None:
    """Try again what was given up: it is due at once, as if it had never failed."""
    settings = load_settings()
    if platform is not None:
        require_platform(platform)

    async def work() -> int:
        async with open_session(settings) as installation:
            return await installation.writer.requeue(platform)

    count = run(work)
    typer.echo(json.dumps({"requeued": count}) if as_json else f"{count:,} candidates are due again.")


@app.command("mirror")
def mirror(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compare every row, also those that were delivered before.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring the mirror in Feishu up to date now.

    Exit code 0: it equals the tables. 1: something was not taken; it waits. 2: no mirror is set up.
    """
    settings = load_settings()

    async def work() -> Exit:
        async with open_session(settings, verbose=verbose) as installation:
            delivered = await _deliver(_require_mirror(installation), rebuild=rebuild)
            await deliver_alerts(installation)
        return _tell_delivered(delivered, as_json=as_json)

    raise typer.Exit(run(work))


@dataclass(frozen=True, slots=True)
class _Bench:
    """An installation with what crawls, and what works with both."""

    installation: Installation
    runner: "CollectRunner"
    monitor: "CollectMonitor"
    stop: Stop

    async def end(self, ended: list[EndedExecution]) -> Exit:
        """Tell people what they have to know: without a service, there is nobody else to do it."""
        for each in ended:
            await self.monitor.record_end(each)
        await self.monitor.check()
        await deliver_alerts(self.installation)
        return Exit.DONE if all(each.status is ExecutionStatus.SUCCEEDED for each in ended) else Exit.FAILED


@asynccontextmanager
async def _open_bench(settings: Settings, *, verbose: bool) -> AsyncIterator[_Bench]:
    async with open_session(settings, verbose=verbose) as installation, open_crawler(installation) as crawler:
        yield _Bench(
            installation,
            make_collect_runner(installation, crawler=crawler),
            make_collect_monitor(installation, crawler=crawler),
            Stop(clock=installation.clock),
        )


def _is_watched(as_json: bool, verbose: bool) -> bool:
    return is_terminal() and not as_json and not verbose


def _require_mirror(installation: Installation) -> FeishuMirror:
    if installation.mirror is None:
        fail("no mirror is set up; set FEISHU_APP_ID and the other FEISHU_ variables (docs/feishu.md)")
    return installation.mirror


async def _deliver(mirror: FeishuMirror, *, rebuild: bool) -> MirrorResult:
    return await (mirror.rebuild() if rebuild else mirror.deliver())


def _tell_delivered(delivered: MirrorResult, *, as_json: bool) -> Exit:
    counts = {name: getattr(delivered, name) for name in ("created", "updated", "deleted", "refused")}
    failures = {table: str(error) for table, error in delivered.failures.items()}
    if as_json:
        typer.echo(json.dumps({**counts, "failures": failures, "busy": delivered.is_busy}, ensure_ascii=False))
    elif delivered.is_busy:
        typer.echo("Another process delivers at this moment; nothing was done here.")
    else:
        typer.echo(", ".join(f"{count:,} {name}" for name, count in counts.items()) + ".")
        for table, reason in failures.items():
            typer.echo(f"tidings: {table}: {reason}", err=True)
    return Exit.FAILED if failures or delivered.refused or delivered.is_busy else Exit.DONE
