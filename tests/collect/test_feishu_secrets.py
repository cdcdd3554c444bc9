"""The canary: the app's secret and every access token, searched for in logs, errors, the database and all output."""

import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from io import StringIO

import pytest
from sqlalchemy import select

from tests.collect.feishu_stage import SEARCH, MirrorMaker, make_service, make_target, put_candidates
from tests.fakes import FakeClock
from tests.traces import find_traces
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database, metadata
from tidings.core.logs.logger import LogFormat, configure_logging, get_logger
from tidings.core.secrets.redaction import Redactor
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import TOKEN_PATH, refuse
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

CANARY = "Kana+rien/vogel=7f3b&9c%2Fd1#e8?a4f6"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor()


@pytest.fixture
def log(redactor: Redactor) -> Iterator[StringIO]:
    """All that is logged, down to what the libraries say."""
    stream = StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=redactor, stream=stream)
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


async def read_database(database: Database) -> str:
    async with database.read() as connection:
        rows = [repr(tuple(row)) for table in metadata.sorted_tables for row in await connection.execute(select(table))]
    return "\n".join(rows)


@pytest.mark.thorough
async def test_no_secret_gets_out_whatever_happens(
    database: Database,
    make_mirror: MirrorMaker,
    clock: FakeClock,
    redactor: Redactor,
    log: StringIO,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """C7, C23: every error on the way, answers that repeat what was sent, and a good end."""
    shown: list[str] = []
    async with make_service(app_secret=CANARY) as service:
        target = make_target(service, secret=CANARY)
        shown += [repr(target), repr(asdict(target)["app_secret"]), str(target)]
        impatient = timedelta(seconds=1)
        mirror = make_mirror(service, clock=clock, target=target, redactor=redactor, timeout=impatient)
        await put_candidates(database, ["a", "b"])
        repeating = f'{{"code": 1254290, "msg": "{CANARY}", "tenant_access_token": "{CANARY}"}}'
        faults = [
            replace(bitable.RESET, path=TOKEN_PATH),
            replace(bitable.HANG, path=TOKEN_PATH),
            Fault(status=200, body=repeating, path=TOKEN_PATH),
            Fault(status=400, body=f"<html>{CANARY}</html>", path=TOKEN_PATH),
            Fault(status=200, body='{"code": 0}', path=TOKEN_PATH),
            *(replace(fault, path=SEARCH) for fault in (bitable.RESET, bitable.UNAVAILABLE, bitable.TOKEN_REFUSED)),
            refuse(1254302, CANARY),
        ]
        for fault in faults:
            service.misbehave(fault)
            delivered = await mirror.deliver()
            assert delivered.failures
            for error in delivered.failures.values():
                shown += [repr(error), "".join(traceback.format_exception(error)), error.action]
                get_logger("test").error("failed", exc_info=error)
            shown.append(repr(await mirror.describe()))
            service.recover()
        assert (await mirror.deliver()).failures == {}
        tokens = service.tokens
        assert len(tokens) > 1
        shown.append(repr(service.describe(full=True)))
    alerts = Alerts(database, clock=clock, destinations=())
    shown += [repr(await alerts.list_open()), await read_database(database), log.getvalue(), *capfd.readouterr()]
    assert "mirror.retried" in log.getvalue()
    for secret in (CANARY, *tokens):
        assert find_traces("\n".join(shown), secret) == set()
    assert all(redactor.recognises(token) for token in tokens)
