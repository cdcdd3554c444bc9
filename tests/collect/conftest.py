"""The writer of collect and the mirror on the test's own database, with all tables mirrored."""

import functools
from pathlib import Path

import pytest

from tests.collect.feishu_stage import MirrorMaker, build_mirror
from tests.fakes import FakeClock
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock


@pytest.fixture
def executions(database: Database, clock: FakeClock, process_lock: ProcessLock) -> Executions:
    return Executions(database, clock=clock, process_lock=process_lock)


@pytest.fixture
def writer(database: Database, executions: Executions, clock: FakeClock) -> Writer:
    return Writer(database, executions=executions, clock=clock, mirrored=("tbl_candidate", "tbl_source"))


@pytest.fixture
def make_mirror(database: Database, client: GuardedClient, tmp_path: Path) -> MirrorMaker:
    return functools.partial(build_mirror, database=database, folder=tmp_path, client=client)
