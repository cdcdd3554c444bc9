"""`tidings collect feishu`: prepare a base of Feishu for the mirror."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.language import say, translate
from tidings.cli.options import VerboseOption, make_group
from tidings.cli.output import print_json, show
from tidings.cli.session import Exit, Session, answering, fail

if TYPE_CHECKING:
    from tidings.collect.feishu.setup import TablePlan

app = make_group("Prepare the mirror in Feishu.")


@app.callback()
def feishu() -> None:
    """Prepare the mirror in Feishu."""


@app.command("setup")
@answering
async def setup(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before anything is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    verbose: VerboseOption = False,
) -> Exit:
    """Create missing tables and fields, and print the settings.

    Needs FEISHU_APP_ID, FEISHU_APP_SECRET and FEISHU_APP_TOKEN. It may be repeated: what exists is kept, and tables of
    your own are not touched.

    Exit code 0: the base has everything. 1: Feishu refused something, or a field has a wrong type. 2: bad input.
    """
    from tidings.collect.feishu.errors import FeishuError
    from tidings.collect.feishu.setup import carry_out, plan_setup
    from tidings.wiring.collect import make_feishu_client

    target = session.settings.collect.feishu
    if target is None:
        fail("set FEISHU_APP_ID, FEISHU_APP_SECRET and FEISHU_APP_TOKEN first (docs/feishu.md)")
    installation = await session.open(verbose=verbose)
    client = make_feishu_client(installation, target)
    try:
        plans = await plan_setup(client, target)
        if not session.as_json:
            _print_plans(plans)
        is_open = any(not plan.is_complete for plan in plans)
        if is_open and not (dry_run or yes or session.as_json):
            typer.confirm(say("Change the base?"), abort=True)
        ids = {plan.name: plan.table_id if dry_run else await carry_out(client, plan) for plan in plans}
    except FeishuError as error:
        said = {"error": translate(str(error)), "action": translate(error.action)}
        fail("{error}; nothing is lost, and setup may be repeated. {action}", **said, code=Exit.FAILED)
    if session.as_json:
        print_json({"changes": _describe_plans(plans), "settings": _name_settings(ids), "dryRun": dry_run})
    elif not dry_run:
        show("Store these settings, and give them to every process of Tidings:")
        for name, table_id in _name_settings(ids).items():
            typer.echo(f"{name}={table_id}")
    return Exit.FAILED if any(plan.difference.wrong for plan in plans) else Exit.DONE


def _name_settings(ids: dict[str, str | None]) -> dict[str, str]:
    from tidings.settings.collect import FEISHU_TABLES

    return {FEISHU_TABLES[name]: table_id for name, table_id in ids.items() if table_id is not None}


def _describe_plans(plans: "list[TablePlan]") -> list[dict[str, Any]]:
    return [
        {
            "table": plan.name,
            "createsTable": plan.table_id is None,
            "createsFields": list(plan.difference.missing),
            "changesFields": list(plan.difference.outdated),
            "wrongFields": list(plan.difference.wrong),
        }
        for plan in plans
    ]


def _print_plans(plans: "list[TablePlan]") -> None:
    for plan in plans:
        changes = [
            (say("create the table with all its fields"), plan.table_id is None),
            (say("create {names}", names=", ".join(plan.difference.missing)), plan.difference.missing),
            (say("change the type of {names}", names=", ".join(plan.difference.outdated)), plan.difference.outdated),
        ]
        texts = [text for text, is_needed in changes if is_needed]
        typer.echo(f"{plan.name}: {'; '.join(texts) or say('complete')}")
        for name in plan.difference.wrong:
            wrong = say("the field {name} has a wrong type; change or rename it", name=name)
            typer.echo(f"tidings: {plan.name}: {wrong}", err=True)
