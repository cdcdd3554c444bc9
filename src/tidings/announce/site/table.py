"""The table of sites. Keys are encrypted at rest; the other settings are JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    LargeBinary,
    Row,
    Select,
    Table,
    Text,
    and_,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import NoResultFound
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, RankedSettings
from tidings.announce.site.document import describe_site, read_site
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import Site
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database, RowId, metadata
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from tidings.announce.schedule.table import Schedules

sites = Table(
    "sites",
    metadata,
    Column("number", RowId, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("origin", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("indexnow_key", LargeBinary),
    Column("encryption_key_id", Text),
    Column("enabled", Boolean, nullable=False),
    Column("removed_at", BigInteger),
    Column("purged_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("bing_key", LargeBinary),
    Column("baidu_token", LargeBinary),
    Column("google_credentials", LargeBinary),
    Column("hook_secret", LargeBinary),
    Column("group_name", Text),
    # Google counts the quota of all sites of one Cloud project together. The column stays after the site is removed.
    Column("google_project", Text),
    Index("sites_by_google_project", "google_project"),
    sqlite_autoincrement=True,
)


_is_there = sites.c.removed_at.is_(None)
_PURGE_EVERY_MS = 24 * 60 * 60 * 1000

# The channels with a key of their own, which is a column of the table.
_RANKED: tuple[type[RankedSettings], ...] = (BingSettings, BaiduSettings, GoogleSettings)
# The columns of keys, each with the field of the site's document.
_KEY_FIELDS = {
    "indexnow_key": "indexnowKey",
    "hook_secret": "hookSecret",
    **{kind.fields.key_column: kind.fields.key for kind in _RANKED},
}

# Replaces the key in the URL of its file. A URL cannot contain a space.
_KEY_HERE = " key "


class Origin(StrEnum):
    """How a site was added. A site of the command line was announced once by hand and has no schedule."""

    COMMAND = "command"
    ENVIRONMENT = "environment"
    API = "api"


_two_ids = select(sites.c.id).where(_is_there, sites.c.origin != Origin.COMMAND.value).limit(2)


class SiteRecords:
    """The sites of this installation."""

    def __init__(self, database: Database, *, keys: KeyRing, clock: Clock, planner: "Schedules | None" = None) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock
        self._planner = planner

    async def save(self, site: Site, *, origin: Origin) -> Site:
        """Store a site, or replace the one with this id. Returns it with its number."""
        async with self._database.write() as connection:
            return await self._store(connection, site, origin=origin)

    async def _store(self, connection: AsyncConnection, site: Site, *, origin: Origin, over: Any = None) -> Site:
        now = to_milliseconds(self._clock.now())
        values = {
            **self._encrypt(site),
            "origin": origin.value,
            "host": site.host,
            "settings": json.dumps(_to_settings(site)),
            "group_name": site.group,
            "google_project": site.google.quota_project,
            "enabled": site.enabled,
            "removed_at": None,
            "updated_at": now,
        }
        statement = (
            self._database.insert(sites)
            .values(id=site.id, created_at=now, **values)
            .on_conflict_do_update(index_elements=["id"], set_=values, where=over)
            .returning(sites.c.number)
        )
        stored = replace(site, number=(await connection.execute(statement)).scalar_one())
        if self._planner is not None:
            await self._planner.plan(connection, stored)
        return stored

    async def add(self, site: Site) -> Site | None:
        """Store a site of the API. None where this id is taken."""
        # Checked by the statement itself: of two calls that add one id at once, the second must not replace the first.
        free = or_(~_is_there, sites.c.origin == Origin.COMMAND.value)
        try:
            async with self._database.write() as connection:
                return await self._store(connection, site, origin=Origin.API, over=free)
        except NoResultFound:
            return None

    async def adopt(self, site: Site) -> Site:
        """Give a number to a site that was announced by hand. A configured site with this id keeps its settings."""
        statement = select(sites.c.number).where(_is_there, sites.c.id == site.id, sites.c.origin != Origin.COMMAND)
        number = await self._database.fetch_value(statement)
        return await self.save(site, origin=Origin.COMMAND) if number is None else replace(site, number=number)

    async def find_number(self, site_id: str) -> int:
        """The number of a site, also of a removed one. 0 where there is none."""
        return await self._database.fetch_value(select(sites.c.number).where(sites.c.id == site_id)) or 0

    async def find_group(self, site_id: str) -> str | None:
        """The group of a site. None where there is no such site, or where it has none."""
        statement = select(sites.c.group_name).where(_is_there, sites.c.id == site_id)
        found: str | None = await self._database.fetch_value(statement)
        return found

    async def find(self, site_id: str) -> Site | None:
        return await self._find(sites.c.id == site_id)

    async def find_by_number(self, number: int) -> Site | None:
        return await self._find(sites.c.number == number)

    async def _find(self, which: ColumnElement[bool]) -> Site | None:
        row = await self._database.fetch_row(select(sites).where(_is_there, which))
        return None if row is None else self._read(row)

    async def change(self, site_id: str, change: Callable[[Site], Site]) -> Site | None:
        """Replace a site by the result of `change`, in one transaction. None where there is no such site."""
        async with self._database.write() as connection:
            found = select(sites).where(_is_there, sites.c.id == site_id).with_for_update()
            row = (await connection.execute(found)).first()
            if row is None:
                return None
            return await self._store(connection, change(self._read(row)), origin=Origin.API)

    async def check_keys(self) -> None:
        """Open the keys of one site for each master key. Raises KeyRingError."""
        first = select(func.min(sites.c.number)).where(_is_there).group_by(sites.c.encryption_key_id)
        for row in await self._database.fetch(select(sites).where(sites.c.number.in_(first))):
            self._read(row)

    async def list_page(self, *, after: str | None = None, limit: int = 50, group: str | None = None) -> list[Site]:
        """The next configured sites, by id; of one group, or of all."""
        statement = select(sites).where(_is_configured(group)).order_by(sites.c.id).limit(limit)
        if after is not None:
            statement = statement.where(sites.c.id > after)
        return [self._read(row) for row in await self._database.fetch(statement)]

    async def find_only_id(self) -> str | None:
        """The id of the only configured site. None where there is none, or more than one."""
        found = await self._database.look_up(_two_ids, {})
        return found[0].id if len(found) == 1 else None

    async def list_groups(self) -> list[str]:
        """The groups that sites have, by name; the first hundred."""
        groups = select(sites.c.group_name).where(_is_there, sites.c.group_name.is_not(None)).distinct()
        return [row.group_name for row in await self._database.fetch(groups.order_by(sites.c.group_name).limit(100))]

    async def has_group(self, group: str) -> bool:
        """Whether a site is in this group."""
        statement = select(sites.c.number).where(_is_there, _is_in(group)).limit(1)
        return await self._database.fetch_value(statement) is not None

    async def count(self, *, group: str | None = None) -> int:
        """The number of configured sites; of one group, or of all."""
        return int(await self._database.fetch_value(select_count(group)))

    async def list_all(self) -> list[Site]:
        """All sites, by id, also those that were announced by hand."""
        statement = select(sites).where(_is_there).order_by(sites.c.id)
        return [self._read(row) for row in await self._database.fetch(statement)]

    async def list_unscheduled(self) -> set[int]:
        """The numbers of sites that no schedule runs: disabled, or only announced by hand."""
        by_hand = sites.c.origin == Origin.COMMAND.value
        statement = select(sites.c.number).where(_is_there, or_(by_hand, ~sites.c.enabled))
        return {row.number for row in await self._database.fetch(statement)}

    async def remove(self, site_id: str) -> bool:
        """Remove a site and its keys. False where there is no such site.

        Its number and its ledger stay, so that a site that is added again announces nothing twice.
        """
        values = {
            "removed_at": to_milliseconds(self._clock.now()),
            "enabled": False,
            **dict.fromkeys(_KEY_FIELDS),
            "encryption_key_id": None,
        }
        statement = update(sites).where(_is_there, sites.c.id == site_id).values(values).returning(sites.c.number)
        async with self._database.write() as connection:
            number = (await connection.execute(statement)).scalar()
            if number is not None and self._planner is not None:
                await self._planner.drop(connection, number)
        return number is not None

    async def rotate_keys(self) -> int:
        """Encrypt keys of an older master key with the newest one. Can be repeated. Returns how many sites changed."""
        rotated = 0
        rows = await self._database.fetch(select(sites.c.id, sites.c.encryption_key_id).where(_is_there))
        for row in rows:
            if self._keys.needs_rotation(row.encryption_key_id):
                rotated += await self._rotate(row.id)
        return rotated

    async def count_key_ids(self) -> dict[str, int]:
        """The number of sites by the master key that encrypts their keys."""
        statement = select(sites.c.encryption_key_id, func.count()).where(_is_there).group_by(sites.c.encryption_key_id)
        return {row[0]: row[1] for row in await self._database.fetch(statement)}

    async def _rotate(self, site_id: str) -> int:
        async with self._database.write() as connection:
            found = select(sites).where(_is_there, sites.c.id == site_id).with_for_update()
            row = (await connection.execute(found)).first()
            if row is None or not self._keys.needs_rotation(row.encryption_key_id):
                return 0
            values = self._encrypt(self._read(row))
            await connection.execute(update(sites).where(sites.c.id == site_id).values(values))
            return 1

    def _encrypt(self, site: Site) -> dict[str, Any]:
        """The columns of the site's keys. One master key encrypts all of them."""
        blob, key_id = self._keys.encrypt(site.key, **_name_place(site.id, "indexnow_key"))
        values: dict[str, Any] = {"indexnow_key": blob, "encryption_key_id": key_id}
        others = {settings.fields.key_column: settings.key for settings in site.ranked}
        for column, secret in {**others, "hook_secret": site.hook_secret}.items():
            values[column] = None
            if secret is not None:
                values[column], _ = self._keys.encrypt(secret, **_name_place(site.id, column))
        return values

    def _read(self, row: Row[Any]) -> Site:
        blobs = {column: getattr(row, column) for column in _KEY_FIELDS}
        keys = {
            column: self._keys.decrypt(blob, key_id=row.encryption_key_id, **_name_place(row.id, column))
            for column, blob in blobs.items()
            if blob is not None
        }
        columns = {"id": row.id, "host": row.host, "enabled": row.enabled, "group": row.group_name}
        return replace(_from_settings(json.loads(row.settings), keys=keys, **columns), number=row.number)


async def claim_purge(connection: AsyncConnection, *, site: int, now: int) -> bool:
    """Whether the caller shall purge expired rows of a site now. True for one caller a day."""
    statement = (
        update(sites)
        .where(sites.c.number == site, or_(sites.c.purged_at.is_(None), sites.c.purged_at <= now - _PURGE_EVERY_MS))
        .values(purged_at=now)
    )
    return bool((await connection.execute(statement)).rowcount)


def select_count(group: str | None) -> Select[Any]:
    """The number of configured sites; of one group, or of all."""
    return select(func.count()).select_from(sites).where(_is_configured(group))


def _is_configured(group: str | None) -> ColumnElement[bool]:
    """The condition for configured sites, not those that were only announced by hand; of this group, or of any."""
    return and_(_is_there, sites.c.origin != Origin.COMMAND, _is_in(group))


def _is_in(group: str | None) -> ColumnElement[bool]:
    return true() if group is None else sites.c.group_name == group


def _name_place(site_id: str, column: str) -> dict[str, str]:
    """The associated data of a key: moved to another row or column, it does not decrypt."""
    return {"purpose": column.replace("_", "-"), "table": "sites", "column": column, "row": site_id}


def _to_settings(site: Site) -> dict[str, Any]:
    """The document of a site without the fields that are columns."""
    columns = {*_KEY_FIELDS.values(), "id", "host", "enabled", "group", "sitemapUrl"}
    settings = {name: value for name, value in describe_site(site).items() if name not in columns}
    # It usually contains the key, which must not be in the table in clear.
    return settings | {"keyLocation": site.key_location.replace(site.key.reveal(), _KEY_HERE)}


def _from_settings(settings: dict[str, Any], *, keys: Mapping[str, Secret], **columns: Any) -> Site:
    """A row of an earlier release lacks the settings of later channels: they have their defaults."""
    revealed = {_KEY_FIELDS[column]: secret.reveal() for column, secret in keys.items()}
    location = settings["keyLocation"].replace(_KEY_HERE, revealed["indexnowKey"])
    return read_site({**settings, **revealed, **columns, "keyLocation": location})
