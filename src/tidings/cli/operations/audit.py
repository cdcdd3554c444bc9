"""`tidings audit`: look for secrets in clear, and judge file modes, keys and tokens."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tidings
from tidings.cli.language import say, translate
from tidings.cli.output import escape, make_console, print_json
from tidings.cli.session import Exit, Session, answering, fail
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.audit.audit import AuditSubject
    from tidings.audit.report import AuditFinding, AuditReport, Check
    from tidings.audit.secret_finder import KnownSecret
    from tidings.settings.settings import Settings


@answering
async def audit(
    session: Session,
    backup: Annotated[
        list[Path] | None,
        typer.Option("--backup", help="A backup or a folder of backups; repeat it for more. [the data directory]"),
    ] = None,
    repository: Annotated[
        Path, typer.Option("--repository", help="A folder that is published, such as a checkout.")
    ] = Path(),
) -> Exit:
    """Look for cookies, keys and tokens in clear. Changes nothing, shows no secret.

    Looks into the database, its files, logs, backups and the working folder, and judges file modes, keys and tokens.

    Exit code 0: passed. 1: something was found. 2: bad input.
    """
    from tidings.audit.audit import run_audit

    if not repository.is_dir():
        fail("--repository: {path} is not a folder; nothing was searched", path=repository)
    for path in backup or ():
        # Whether there is one behind a closed folder is for the audit to find.
        with suppress(PermissionError):
            if not path.exists():
                fail("--backup: {path} does not exist; nothing was searched", path=path)
    report = await run_audit(_make_subject(session.settings, backups=backup or [], repository=repository))
    if session.as_json:
        print_json(report.describe(), indent=2)
    else:
        _show(report, make_console())
    return Exit.DONE if report.passed else Exit.FAILED


def _make_subject(settings: "Settings", *, backups: list[Path], repository: Path) -> "AuditSubject":
    """The installation of these settings, as the audit sees it."""
    from tidings.audit.audit import AuditSubject
    from tidings.settings.settings import TOKEN_VARIABLES
    from tidings.storage import find_database_url

    return AuditSubject(
        data_dir=settings.data_dir,
        database_url=Secret(find_database_url(settings)),
        package=Path(tidings.__file__).parent,
        repository=repository,
        master_key=settings.master_key,
        fernet_salt=settings.fernet_salt,
        secrets=list(_name_secrets(settings)),
        tokens={TOKEN_VARIABLES[scope]: token for scope, token in settings.tokens.items()},
        backups=backups,
    )


def _name_secrets(settings: "Settings") -> "Iterator[KnownSecret]":
    """The secrets of the settings, each with its variable."""
    from tidings.audit.secret_finder import KnownSecret
    from tidings.core.alerts.messengers import split_urls

    for name, secret in settings.secrets.items():
        # Only parts of these are secret, or there are several.
        if name not in ("TIDINGS_DATABASE_URL", "TIDINGS_ALERT_URLS", "COOKIE_MASTER_KEY"):
            yield KnownSecret(name, secret, published=name == "INDEXNOW_API_KEY")
    if settings.alert_urls is not None:
        yield from (KnownSecret("a URL of TIDINGS_ALERT_URLS", url) for url in split_urls(settings.alert_urls))
    if (password := _find_password(settings)) is not None:
        yield KnownSecret("the password of TIDINGS_DATABASE_URL", password)


def _find_password(settings: "Settings") -> Secret | None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    from tidings.core.secrets.token_strength import is_made_of_words

    if settings.database_url is None:
        return None
    try:
        password = make_url(settings.database_url.reveal()).password
    except (SQLAlchemyError, ValueError):
        return None
    # A password such as `postgres` would be found in every text.
    return None if password is None or is_made_of_words(str(password)) else Secret(str(password))


def _show(report: "AuditReport", console: "Console") -> None:
    for check in report.checks:
        _show_check(check, console)
    console.print(say("[bold green]passed[/]") if report.passed else say("[bold red]not passed[/]"))


def _show_check(check: "Check", console: "Console") -> None:
    from tidings.audit.report import ADVICE

    verdict = say("[green]ok    [/]") if check.passed else say("[red]FAILED[/]")
    name, covered = (escape(translate(text)) for text in (check.name.value.replace("_", " "), check.covered))
    title = say("{verdict} {name} ({covered})", verdict=verdict, name=name, covered=covered)
    console.print(title, soft_wrap=True)
    for finding in check.findings:
        _show_finding(finding, console, colour="red")
    for warning in check.warnings:
        _show_finding(warning, console, colour="yellow")
    if not check.passed:
        advice = escape(translate(ADVICE[check.name]))
        console.print("      ", say("{advice}.", advice=advice), soft_wrap=True)


def _show_finding(finding: "AuditFinding", console: "Console", *, colour: str) -> None:
    where, what = escape(translate(finding.where)), escape(translate(finding.what))
    line = say("[{colour}]{where}[/]: {what}", colour=colour, where=where, what=what)
    console.print("      ", line, soft_wrap=True)
