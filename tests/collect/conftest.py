"""The writer of collect on the test's own database, with both tables mirrored."""

import pytest

from tests.fakes import FakeClock
from tidings.collect.workflow import Workflows
from tidings.core.database import Database
from tidings.core.executions import Executions
from tidings.core.holders import Holder


@pytest.fixture
def executions(database: Database, clock: FakeClock, holder: Holder) -> Executions:
    return Executions(database, clock=clock, holder=holder)


@pytest.fixture
def workflows(database: Database, executions: Executions, clock: FakeClock) -> Workflows:
    return Workflows(database, executions=executions, clock=clock, mirrored=("tbl_candidate", "tbl_source"))
