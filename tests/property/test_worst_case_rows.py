"""The number of rows at worst is never below the number of rows there are.

For the accepted corpus, joins that multiply and random questions of a grammar: Plan.rows, and every derived table
inside it, are run on a prepared copy of small skewed data, and compared with what is said of them from sizes that
truly bound that data: rows, units, rows of one unit, the sum of their squares, values of every key.
"""

import random
from dataclasses import replace
from functools import cache

import duckdb
import pytest
from sqlglot import exp

from service.core.errors import ServiceError
from service.core.plan import Plan
from service.core.prepared import UNIT_COLUMN
from service.core.request import Ask, AskedBounds
from service.core.sizes import PrivateSize, Profile, PublicSize, Size
from service.engine.emit.spelling import tree_sql
from service.engine.worst_case import shapes
from service.engine.worst_case.rows import bounded_rows
from service.engine.worst_case.shapes import RowShape
from service.engine.worst_case.task import task_of
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql import grammar
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA, rows
from tests.property.test_neighbours_fuzz import world

SEEDS = 12
QUESTIONS = 12

MULTIPLIED = [
    "SELECT COUNT(*) FROM orders a JOIN orders b ON a.customer_id = b.customer_id",
    "SELECT COUNT(*) FROM orders a JOIN orders b ON a.order_id = b.order_id",
    "SELECT COUNT(*) FROM orders a JOIN visits b ON a.customer_id = b.visitor"
    " JOIN customers c ON c.customer_id = b.visitor",
    "SELECT COUNT(*) FROM orders CROSS JOIN stores CROSS JOIN holidays",
    "SELECT COUNT(*) FROM orders o JOIN holidays h ON o.placed = h.on_day CROSS JOIN stores",
    "SELECT COUNT(*) FROM orders o JOIN holidays h ON o.placed < h.on_day",
    "SELECT COUNT(*) FROM orders o LEFT JOIN holidays h ON o.placed = h.on_day AND h.label <> 'h1'",
    "SELECT COUNT(*) FROM orders o LEFT JOIN stores s ON TRUE",
    "SELECT COUNT(*) FROM stores s JOIN stores t ON s.city = t.city JOIN orders o ON o.store = s.store",
    "SELECT COUNT(*) FROM orders o JOIN stores s ON o.store + 1 = s.store",
    "SELECT COUNT(*) FROM orders o JOIN stores s ON o.store = s.store OR o.status = 'paid'",
    "SELECT COUNT(*) FROM orders o JOIN stores s ON o.status = s.city",
    "SELECT COUNT(*) FROM items i JOIN orders o ON i.order_id = o.order_id JOIN products p ON p.kind = o.status",
    "SELECT COUNT(*) FROM orders o"
    " WHERE EXISTS (SELECT 1 FROM visits v CROSS JOIN stores WHERE v.visitor = o.customer_id)",
    "SELECT COUNT(*) FROM (SELECT customer_id, amount FROM orders UNION ALL SELECT visitor, seconds FROM visits) t"
    " JOIN orders o ON o.customer_id = t.customer_id",
    "SELECT COUNT(*) FROM (SELECT customer_id, status, COUNT(*) AS n FROM orders GROUP BY customer_id, status) a"
    " JOIN (SELECT customer_id, store, COUNT(*) AS n FROM orders GROUP BY customer_id, store) b"
    " ON a.customer_id = b.customer_id",
    "SELECT COUNT(*) FROM (SELECT c.customer_id, s.city, COUNT(*) AS n FROM customers c CROSS JOIN stores s"
    " GROUP BY c.customer_id, s.city) t CROSS JOIN products",
    "SELECT k, COUNT(*) FROM (SELECT customer_id, MONTH(placed) AS k, COUNT(*) AS n FROM orders"
    " GROUP BY customer_id, MONTH(placed)) t GROUP BY k",
    "SELECT COUNT(*) FROM customers c LEFT JOIN (SELECT customer_id AS u, vip, COUNT(*) AS n FROM customers"
    " GROUP BY customer_id, vip) t ON t.u = c.customer_id CROSS JOIN holidays",
]


@cache
def data() -> duckdb.DuckDBPyConnection:
    """A few people, some of them far heavier than the others."""
    found = world()
    more = rows(31, customers=25)
    found["visits"] += [row for row in more["visits"] if row["visitor"] != 3]
    return prepared(SCHEMA, found)


def true_sizes(*, profiled: bool) -> dict[str, Size]:
    """What is true of the data, and no more; with a profile of no noise, or without one."""
    found: dict[str, Size] = {}
    for table in SCHEMA.tables.values():
        if table.private:
            counts = [n for (n,) in _all(f'SELECT count(*) FROM "{table.name}" GROUP BY "{UNIT_COLUMN}"')]
            bins = tuple(sum(1 for n in counts if (n - 1).bit_length() == at) for at in range(8))
            profile = Profile(bins, 0.0, "q") if profiled else None
            found[table.name] = PrivateSize(sum(counts), len(counts), max(counts), profile)
        else:
            most = {
                name: _one(f'SELECT max(n) FROM (SELECT count("{name}") AS n FROM "{table.name}" GROUP BY "{name}")')
                for name in table.columns
            }
            found[table.name] = PublicSize(_one(f'SELECT count(*) FROM "{table.name}"'), most)
    return found


def _all(sql: str) -> list[tuple[int, ...]]:
    return data().execute(sql).fetchall()


def _one(sql: str) -> int:
    return int(_all(sql)[0][0])


def exceeded(sql: str, *, profiled: bool) -> list[str]:
    """Where there is more than was said; nothing, if all is well. Refused questions say nothing."""
    try:
        query = understand(Ask("shop", sql, bounds=AskedBounds(rows_per_unit=3, groups_per_unit=2)), SCHEMA)
    except ServiceError:
        return []
    found: list[str] = []
    for plan in query.cores:
        sizes = true_sizes(profiled=profiled)
        whole = bounded_rows(plan, sizes)
        found += _beyond(tree_sql(plan.rows), whole.shape)
        found += _groups_beyond(plan, task_of(plan, whole, None, None).all_groups)
        for inner in plan.rows.find_all(exp.Subquery):
            if isinstance(inner.parent, exp.From | exp.Join) and inner.find_ancestor(exp.Exists) is None:
                part = replace(plan, rows=inner.this, row_bound=None)  # a SELECT, or a UNION of them
                found += _beyond(tree_sql(inner.this), bounded_rows(part, sizes).shape)
    return found


def _beyond(sql: str, said: RowShape) -> list[str]:
    if not said.private:
        return [f"{said.rows} rows: {sql}"] if _one(f"SELECT count(*) FROM ({sql})") > said.rows else []
    per_unit = f'SELECT count(*) AS n FROM ({sql}) GROUP BY "{UNIT_COLUMN}"'
    columns = "coalesce(sum(n), 0), count(*), coalesce(max(n), 0), coalesce(sum(n * n), 0)"
    ((total, units, most, squares),) = _all(f"SELECT {columns} FROM ({per_unit})")
    claims = {"rows": (total, said.rows), "units": (units, said.units or 0)}
    claims |= {"most": (most, said.most), "squares": (squares, said.squares)}
    return [f"{what}: {true} above {bound}: {sql}" for what, (true, bound) in claims.items() if true > bound]


def _groups_beyond(plan: Plan, said: int) -> list[str]:
    if not plan.keys:
        return []
    by = ", ".join(f'"{key.name}"' for key in plan.keys)
    groups = _one(f"SELECT count(*) FROM (SELECT {by} FROM ({tree_sql(plan.rows)}) GROUP BY {by})")
    return [f"groups: {groups} above {said}: {tree_sql(plan.rows)}"] if groups > said else []


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("sql", [*MULTIPLIED, *accepted()])
def test_there_are_never_more_rows_than_at_worst(sql: str, profiled: bool) -> None:
    assert exceeded(sql, profiled=profiled) == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nor_in_questions_that_nobody_chose(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(QUESTIONS):
        assert exceeded(grammar.sql(draw, grammar.source(draw)), profiled=draw.random() < 0.5) == []


def test_every_join_that_multiplies_is_understood_and_bounded() -> None:
    """None of them may pass above because it was refused."""
    for sql in MULTIPLIED:
        (plan,) = understand(Ask("shop", sql), SCHEMA).cores
        assert bounded_rows(plan, true_sizes(profiled=False)).shape.rows > 0


def test_a_bound_that_forgets_multiplicity_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: every row meets at most one other."""
    monkeypatch.setattr(shapes, "met", lambda here, there, links, *, on_unit: (1, 1))
    caught = [sql for sql in MULTIPLIED if exceeded(sql, profiled=False)]
    assert len(caught) > len(MULTIPLIED) // 2


def test_a_bound_that_counts_a_public_value_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: as if every column of a public table were unique."""
    sizes = true_sizes(profiled=False)
    (plan,) = understand(
        Ask("shop", "SELECT COUNT(*) FROM orders o JOIN holidays h ON o.placed = h.on_day"), SCHEMA
    ).cores
    holidays = sizes["holidays"]
    assert isinstance(holidays, PublicSize)
    unique = replace(holidays, most_of_one_value=dict.fromkeys(holidays.most_of_one_value, 1))
    true = _one(f"SELECT count(*) FROM ({tree_sql(plan.rows)})")
    assert bounded_rows(plan, sizes).shape.rows >= true
    assert true > _one("SELECT count(*) FROM orders WHERE placed IN (SELECT on_day FROM holidays)")
    assert bounded_rows(plan, {**sizes, "holidays": unique}).shape.rows < bounded_rows(plan, sizes).shape.rows


def test_groups_per_unit_that_are_taken_to_be_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: every key is a function of the unit."""
    plain = shapes.ColumnFacts
    monkeypatch.setattr(
        "service.engine.worst_case.rows.described",
        lambda tree, shape: plain(shape.rows, None, of_unit=True),
    )
    assert any(exceeded(sql, profiled=False) for sql in MULTIPLIED)
