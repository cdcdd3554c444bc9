"""`tidings collect mirror`: bring the Feishu mirror up to date."""

from typing import Annotated

import typer

from tidings.cli.language import label, translate
from tidings.cli.options import VerboseOption
from tidings.cli.output import print_json, show
from tidings.cli.session import Exit, Session, answering, deliver_alerts, fail


@answering
async def mirror(
    session: Session,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compare every row, also delivered ones.")] = False,
    verbose: VerboseOption = False,
) -> Exit:
    """Bring the mirror in Feishu up to date now.

    Exit code 0: it equals the tables. 1: Feishu did not take everything; the rest waits. 2: no mirror is set up.
    """
    installation = await session.open(verbose=verbose)
    if installation.collect.mirror is None:
        if session.settings.collect.feishu is None:
            fail("no mirror is set up; set FEISHU_APP_ID, then run `tidings collect feishu setup` (docs/feishu.md)")
        session.warn_of_mirror()
        fail("no table is mirrored; set the FEISHU_TABLE_… that `tidings collect feishu setup` prints")
    delivered = await (installation.collect.mirror.rebuild() if rebuild else installation.collect.mirror.deliver())
    await deliver_alerts(installation)
    counts = {name: getattr(delivered, name) for name in ("created", "updated", "deleted", "refused")}
    failures = {table: str(error) for table, error in delivered.failures.items()}
    if session.as_json:
        print_json({**counts, "failures": failures, "busy": delivered.is_busy})
    elif delivered.is_busy:
        show("Another process delivers now; nothing was done here.")
    else:
        show("{created} created, {updated} updated, {deleted} deleted, {refused} refused.", **counts)
        for table, reason in failures.items():
            typer.echo(f"tidings: {label(table, translate(reason))}", err=True)
    return Exit.FAILED if failures or delivered.refused or delivered.is_busy else Exit.DONE
