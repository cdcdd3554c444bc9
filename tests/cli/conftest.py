"""What the tests of the command line stand on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    await opened.close()
