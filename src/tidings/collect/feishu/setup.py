"""The tables and fields that the base must have: `plan_setup` finds what is missing, `carry_out` creates it, and
`prepare_fields` checks one table before a delivery.

Everything may be repeated: a table is found by its id in the settings, else by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidings.collect.feishu.client import BitableClient, FeishuTarget, FieldInfo
from tidings.collect.feishu.errors import MISSING_KEY, NO_TABLE, FeishuError, make_wrong_type
from tidings.collect.feishu.rows import BASE_TABLES, KEY_FIELD, KEYWORD_TABLE, MirrorField, sign_fields
from tidings.collect.feishu.store import MirrorStore
from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """How the fields of a table in Feishu differ from those that it must have."""

    # Fields to create.
    missing: tuple[str, ...] = ()
    # Ids of fields that take our values, but have another type: a number in place of a date.
    outdated: Mapping[str, str] = field(default_factory=dict)
    # Fields whose type takes other values. A person must change or rename them.
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What one table needs."""

    # The name of our table.
    name: str
    # Its id in the base. None: it has to be created, with all its fields.
    table_id: str | None
    difference: FieldDifference = FieldDifference()

    @property
    def is_complete(self) -> bool:
        return self.table_id is not None and not (self.difference.missing or self.difference.outdated)


async def plan_setup(client: BitableClient, target: FeishuTarget) -> list[TablePlan]:
    """What every table of the base needs. Changes nothing. Raises FeishuError."""
    present = await client.list_tables()
    given = {**target.tables, **({} if target.keyword_table is None else {KEYWORD_TABLE: target.keyword_table})}
    plans = []
    for name in BASE_TABLES:
        table_id = given.get(name) or present.get(name)
        if table_id is None:
            plans.append(TablePlan(name, None))
            continue
        if table_id not in present.values():
            raise FeishuError(NO_TABLE, detail=name)
        plans.append(TablePlan(name, table_id, _compare_fields(name, await client.list_fields(table_id))))
    return plans


async def carry_out(client: BitableClient, plan: TablePlan) -> str:
    """Create and change what a table needs; returns its id in the base. Raises FeishuError."""
    wanted = BASE_TABLES[plan.name]
    if plan.table_id is None:
        table_id = await client.create_table(plan.name, wanted)
        _log.info("table.created", table=plan.name)
        return table_id
    for name in plan.difference.missing:
        await client.create_field(plan.table_id, name, wanted[name])
    for name, field_id in plan.difference.outdated.items():
        await client.change_field(plan.table_id, field_id, name, wanted[name])
    if not plan.is_complete:
        _log.info("fields.completed", table=plan.name)
    return plan.table_id


async def prepare_fields(client: BitableClient, store: MirrorStore, *, table_id: str, same_target: bool) -> bool:
    """Create the missing fields of a mirrored table. Returns whether the fields changed since the last delivery.

    Raises FeishuError for a field of another type, and for a key field that was lost from the same target.
    """
    present = await client.list_fields(table_id)
    if KEY_FIELD not in present and same_target and await store.has_records():
        # A new key field would be empty, and every row would be created once more.
        raise FeishuError(MISSING_KEY)
    difference, wanted = _compare_fields(store.table_name, present), store.table.fields
    for name in difference.wrong:
        raise make_wrong_type(name, wanted=_name_type(wanted[name]))
    if difference.missing:
        for name in difference.missing:
            await store.check()
            await client.create_field(table_id, name, wanted[name])
        present = await client.list_fields(table_id)
    ours = {name: (found.type, found.field_id) for name, found in present.items() if name in wanted}
    return await store.record_signature(sign_fields(ours))


def _compare_fields(table_name: str, present: Mapping[str, FieldInfo]) -> FieldDifference:
    wanted = BASE_TABLES[table_name]
    both = {name: present[name] for name in wanted if name in present}
    others = {name: found for name, found in both.items() if found.type != wanted[name].type}
    return FieldDifference(
        missing=tuple(name for name in wanted if name not in present),
        outdated={name: found.field_id for name, found in others.items() if wanted[name].takes(found.type)},
        wrong=tuple(name for name, found in others.items() if not wanted[name].takes(found.type)),
    )


def _name_type(wanted: MirrorField) -> str:
    return wanted.type.name.replace("_", " ").capitalize()
