"""Installations of Tidings for tests: the settings that they change, and the wiring of the product as it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.settings.collect import CrawlSettings
from tidings.settings.settings import Settings
from tidings.wiring.installation import Installation
from tidings.wiring.opening import open_installation

LOOPBACK = (ip_network("127.0.0.0/8"),)


def make_settings(**changed: Any) -> Settings:
    """Settings that allow loopback and wait for nothing; `changed` are fields of Settings."""
    given: dict[str, Any] = {
        "allow_networks": LOOPBACK,
        "retry_scale": 0.001,
        "resubmit_gap": timedelta(0),
        "request_interval": timedelta(milliseconds=1),
        "schedule_spread": timedelta(0),
        "crawl": CrawlSettings(platform_interval=timedelta(0), cookie_interval=timedelta(0)),
    }
    return Settings(**{**given, **changed})


@asynccontextmanager
async def open_stage(
    database_url: str, folder: Path, *, clock: Clock | None = None, **changed: Any
) -> AsyncIterator[Installation]:
    """An installation as a command or the service opens it, with its data below `folder`."""
    given: dict[str, Any] = {
        "data_dir": folder / "data",
        "database_url": Secret(database_url),
        "master_key": Secret(new_master_key()),
    }
    async with open_installation(make_settings(**{**given, **changed}), clock=clock) as installation:
        yield installation


def make_installation(
    database: Database,
    *,
    clock: Clock,
    client: GuardedClient,
    process_lock: ProcessLock,
    keys: KeyRing,
    **changed: Any,
) -> Installation:
    """An installation around fixtures that are open already. The caller closes them."""
    return Installation(
        settings=make_settings(**changed),
        clock=clock,
        redactor=Redactor(),
        process_lock=process_lock,
        keys=keys,
        made_key=None,
        database=database,
        client=client,
        own_client=client,
    )
