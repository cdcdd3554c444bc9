"""The writer of collect on the test's own database, with both tables mirrored."""

import pytest

from tests.fakes import FakeClock
from tidings.collect.write import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.core.process_lock import ProcessLock


@pytest.fixture
def executions(database: Database, clock: FakeClock, process_lock: ProcessLock) -> Executions:
    return Executions(database, clock=clock, process_lock=process_lock)


@pytest.fixture
def writer(database: Database, executions: Executions, clock: FakeClock) -> Writer:
    return Writer(database, executions=executions, clock=clock, mirrored=("tbl_candidate", "tbl_source"))
