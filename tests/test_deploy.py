"""The files of deploy/ name only what Tidings knows: their variables and commands start a server and a worker.
Containers and systemd themselves are not started here."""

import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from aiohttp import ClientSession

from tests.cli.terminal import Terminal, end
from tests.test_serve import Served, Server
from tests.waiting import wait_until
from tidings.core.secrets.master_key import new_master_key
from tidings.settings.settings import read_settings

DEPLOY = Path(__file__).parents[1] / "deploy"
# A clean end takes so many seconds at the most.
LONGEST_END = 10
GIVEN = {"COOKIE_MASTER_KEY": new_master_key(), "POSTGRES_PASSWORD": "pw", "TIDINGS_TOKEN": "a-long-token-7Kp2-9xQ4"}


def read_compose(given: Mapping[str, str]) -> dict[str, Any]:
    """The services, with variables filled in as Compose does it. Raises LookupError where a required one is missing."""

    def fill(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if given.get(name):
            return given[name]
        if kind == ":-":
            return rest
        raise LookupError(rest)

    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        service["environment"] = {
            name: re.sub(r"\$\{(\w+)(:-|:\?)([^}]*)\}", fill, value) for name, value in service["environment"].items()
        }
    return services


@pytest.mark.parametrize("missing", GIVEN)
def test_compose_refuses_to_start_without_what_all_machines_share(missing: str) -> None:
    """A41: a server and workers with different master keys would open nothing of each other's."""
    with pytest.raises(LookupError, match=missing):
        read_compose({name: value for name, value in GIVEN.items() if name != missing})


@pytest.mark.parametrize("service", ["server", "worker"])
def test_compose_sets_only_variables_that_are_settings(service: str) -> None:
    """A41: a variable that nobody reads would be a promise that nobody keeps."""
    services = read_compose(GIVEN)
    settings = read_settings(services[service]["environment"])
    assert settings.warnings == ()
    assert settings.database_url is not None
    database = services["postgres"]["environment"]
    user, name = database["POSTGRES_USER"], database["POSTGRES_DB"]
    assert settings.database_url.reveal() == f"postgresql://{user}:pw@postgres:5432/{name}"
    assert (settings.webhook_url, settings.alert_urls) == (None, None)
    assert int(services[service]["stop_grace_period"].removesuffix("s")) > LONGEST_END
    assert services["server"]["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]


@pytest.mark.thorough
async def test_the_commands_of_compose_start_a_server_that_is_healthy_and_a_worker(
    tmp_path: Path, postgres_url: str
) -> None:
    """A41: only address, data directory and port differ here, because the test has no containers."""
    services = read_compose(GIVEN)
    async with ClientSession() as client:
        machines = {}
        for name in ("server", "worker"):
            (tmp_path / name).mkdir()
            machines[name] = Terminal(tmp_path / name)
            own = {"TIDINGS_DATABASE_URL": postgres_url, "TIDINGS_DATA_DIR": str(machines[name].data_dir)}
            machines[name].variables = {"PATH": "/usr/bin", **services[name]["environment"], **own}
        served = await Server(machines["server"], client).start_with(*services["server"]["command"][1:])
        worker = await machines["worker"].start(*services["worker"]["command"])
        try:
            assert b"takes jobs of announce, collect" in await worker.stdout.readline()
            await check_health(services["server"]["healthcheck"]["test"], served)

            async def are_registered() -> bool:
                _, answer = await served.ask("/api/workers", token=GIVEN["TIDINGS_TOKEN"])
                return sorted(worker["queues"] for worker in answer["workers"]) == [["announce"], ["collect"]]

            await wait_until(are_registered)
        finally:
            for machine in machines.values():
                await machine.close()


async def check_health(command: list[str], served: Served) -> None:
    """Run the health check of the container against the port that the test's server has."""
    kind, python, option, program = command
    assert (kind, python, option) == ("CMD", "python", "-c")
    address = served.said[-1].split()[3].replace("0.0.0.0", "127.0.0.1")
    program = program.replace("http://127.0.0.1:8080", address)
    assert address in program
    ended = await end(
        await create_subprocess_exec(sys.executable, "-c", program, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    )
    assert (ended.code, ended.err) == (0, "")


async def test_the_unit_of_systemd_runs_a_command_that_exists(tmp_path: Path) -> None:
    """A41: with time for a clean end, and a data directory that systemd makes for each instance."""
    unit = RawConfigParser(strict=False)
    unit.read(DEPLOY / "tidings-worker@.service")
    service = unit["Service"]
    binary, *words = service["ExecStart"].split()
    name, directory = service["Environment"].split("=", 1)
    assert Path(binary).name == "tidings"
    assert directory == f"/var/lib/{service['StateDirectory']}"
    assert read_settings({name: directory}).data_dir == Path(directory)
    assert int(service["TimeoutStopSec"]) > LONGEST_END
    ended = await Terminal(tmp_path).run(*words)
    assert (ended.code, "a worker needs PostgreSQL" in ended.err) == (2, True)
