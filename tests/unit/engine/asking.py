"""Needs of the shop, asked of any engine, and plans that no engine can finish."""

from dataclasses import replace
from typing import Any

import numpy as np
from sqlglot import exp

from service.core.boundary import Array, KeyTable
from service.core.plan import ONE, MomentsNeed, Need, Plan, RowsWeight
from service.core.request import Ask
from service.core.unsealing import unseal
from service.engine.base import Slot
from service.sql.understand import understand
from tests.unit.engine.shop import SCHEMA

SECONDS = 20.0
SALT = 20_261_116
LIGHT = RowsWeight(10)  # nobody has so many rows
EVERY_ROW = MomentsNeed(None, 0, LIGHT)
COUNTED = "SELECT COUNT(*) FROM orders"
BY_SHOP = "SELECT shop, COUNT(*), SUM(amount) FROM orders GROUP BY shop"


def core(sql: str) -> Plan:
    """The plan of a question about the shop."""
    return understand(Ask("shop", sql), SCHEMA).cores[0]


def objects(*values: object) -> Array:
    held = np.empty(len(values), dtype=object)
    held[:] = values
    return held


def keyed(*values: object) -> KeyTable:
    return KeyTable({"k0": objects(*values)}, len(values))


SINGLE = KeyTable.single()
SHOPS = keyed("south", "west", None, "north")


def columns(slot: Slot, plan: Plan, *needs: Need, keys: KeyTable | None = SINGLE, salt: int = SALT) -> dict[str, Any]:
    """All exact columns and sealed keys of the needs, as lists; no two of the needs may share a name."""
    found: dict[str, Any] = {}
    for _, table in slot.compute(slot.work(plan, needs, salt), keys, SECONDS):
        exact, sealed = unseal(table)
        assert not found.keys() & exact.keys()
        found |= {name: values.tolist() for name, values in {**exact, **sealed}.items()}
    return found


def cells(found: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    """Rows of a sparse answer, whose order nobody promises."""
    return sorted(zip(*(found[name] for name in names), strict=True), key=repr)


def count_orders(slot: Slot) -> int:
    """Whether a slot still answers: 4 orders have a customer."""
    (n,) = columns(slot, core(COUNTED), EVERY_ROW)["*.n"]
    return int(n) // ONE


def slow() -> Plan:
    """A plan that no machine finishes: every order with every other, eighteen times over, all added up."""
    plan = core(COUNTED)
    tables = [f"j{number}" for number in range(18)]
    rows = plan.rows.copy()
    for alias in tables:
        rows = rows.join(exp.to_table("orders"), join_alias=alias, join_type="cross")
    codes = [exp.column("amount#", table=alias, quoted=True) for alias in tables]
    total: exp.Expression = codes[0]
    for code in codes[1:]:
        total = exp.Add(this=total, expression=code)
    return replace(plan, rows=rows.where(exp.EQ(this=total, expression=exp.Literal.number(77))), row_bound=None)


def failing() -> Plan:
    """A plan of the kind that the front end never makes: it raises because of what is in a row."""
    plan = core(COUNTED)
    number = exp.Cast(this=exp.column("shop", quoted=True), to=exp.DataType.build("BIGINT"))
    return replace(plan, rows=plan.rows.where(exp.GT(this=number, expression=exp.Literal.number(0))))
