"""What bounds leave out of a value: its formulas, and where nothing can be said."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.app import Walk
from service.catalog.declare import DatasetDeclaration
from service.core.boundary import KeyTable, ReleasedColumn, ReleasedTable
from service.core.plan import Loss, Query
from service.core.reach import Reach, Z
from service.core.request import Ask, AskedBounds
from service.core.schema import Defaults, Schema
from service.core.sizes import Profile, PublicSize, Size, size_of_profile
from service.sql.understand import understand
from service.walk.clipped import Clipped, clipped
from service.walk.defaults import with_fitted_bounds
from tests.fixtures.profiled import put_size
from tests.fixtures.sql.shop import SCHEMA
from tests.fixtures.whole import ANALYST, clinic, visits

DEVIATION = 2.0
ORDERS = Profile((100, 80, 60, 40, 20, 10), DEVIATION, "q_orders")  # up to 32 orders of a customer
VISITS = Profile((50, 50), DEVIATION, "q_visits")
SIZES: dict[str, Size] = {
    "orders": size_of_profile(ORDERS, 32),
    "visits": size_of_profile(VISITS, 2),
    "holidays": PublicSize(9, {"on_day": 3}),
    "products": PublicSize(4, {"product_id": 1}),
}
SHOP = replace(SCHEMA, sizes=SIZES, defaults=Defaults(epsilon=10**12))
STATUS = replace(SCHEMA.tables["orders"].columns["status"], domain=("open", "paid"))
DECLARED_ORDERS = replace(SCHEMA.tables["orders"], columns={**SCHEMA.tables["orders"].columns, "status": STATUS})
DECLARED = replace(SHOP, tables={**SCHEMA.tables, "orders": DECLARED_ORDERS})


def question(sql: str, schema: Schema = SHOP, **bounds: Any) -> Query:
    ask = Ask("shop", sql, bounds=AskedBounds(**bounds))
    return with_fitted_bounds(understand(ask, schema), ask, schema)[0]


def of(sql: str, schema: Schema = SHOP, released: tuple[float, ...] | None = None, **bounds: Any) -> Clipped:
    """Without noise in the answer: what is left is the arithmetic of the profile."""
    return of_noisy(sql, released, 0.0, schema, **bounds)


def of_noisy(
    sql: str, released: tuple[float, ...] | None, noise_std: float | None, schema: Schema = SHOP, **bounds: Any
) -> Clipped:
    query = question(sql, schema, **bounds)
    output = next(each for each in query.outer.outputs if each.role == "value")
    tables = None if released is None else [table(query, released, noise_std)]
    return clipped(output, query, schema, tables)


def table(query: Query, values: tuple[float, ...], noise_std: float | None) -> ReleasedTable:
    column = np.asarray(values)
    columns = {each.name: ReleasedColumn(column, column, column, noise_std) for each in query.cores[0].aggregates}
    return ReleasedTable(KeyTable({}, len(values)), columns, {}, {})


def upper(bound: int, times: int = 1, most: int = 10**9) -> int:
    beyond = [(units, max(0, min(most, times * 2**at) - bound)) for at, units in enumerate(ORDERS.counts)]
    noise = Z * DEVIATION * float(sum(each**2 for _, each in beyond)) ** 0.5
    return -int(-(sum(units * each for units, each in beyond) + noise) // 1)


def test_a_count_of_all_rows_has_both_ends_and_a_share_of_what_was_released() -> None:
    found = of("SELECT COUNT(*) AS n FROM orders", released=(900.0,), rows_per_unit=4)
    assert found.lost is not None
    low, high = found.lost
    assert (high, found.share_of) == (upper(4), "answer")
    assert 0 < low < high
    assert found.share == (round(low / (low + 900), 6), round(high / (high + 900), 6))


def test_under_a_condition_only_the_upper_end_in_rows_holds() -> None:
    found = of("SELECT COUNT(*) AS n FROM orders WHERE amount > 5", released=(100.0,), rows_per_unit=4)
    assert found.lost == (0, upper(4))
    assert found.share == (0.0, round(upper(4) / (upper(4) + 100), 6))
    nothing_left = of("SELECT COUNT(*) AS n FROM orders WHERE amount > 6", released=(-20.0,), rows_per_unit=4)
    assert nothing_left.share == (0.0, 1.0), "whatever was released, a share is at most all"


def test_the_share_reckons_with_the_noise_of_the_answer() -> None:
    low, high = of("SELECT COUNT(*) AS n FROM orders", rows_per_unit=4).lost or (0, 0)
    found = of_noisy("SELECT COUNT(*) AS n FROM orders", (900.0,), 100.0, rows_per_unit=4)
    half = math.ceil(Z * 100)
    assert found.share == (round(low / (low + 900 + half), 6), round(high / (high + 900 - half), 6))
    drowned = of_noisy("SELECT COUNT(*) AS n FROM orders", (900.0,), 500.0, rows_per_unit=4)
    assert drowned.share is not None
    assert drowned.share[1] == 1.0, "perhaps nothing counted at all"
    unknown = of_noisy("SELECT COUNT(*) AS n FROM orders", (900.0,), None, rows_per_unit=4)
    assert unknown.share == (0.0, 1.0)


def test_noise_of_several_groups_adds_up_by_its_variance_and_of_chosen_ones_by_its_width() -> None:
    rows = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"
    high = upper(4)
    found = of_noisy(rows, (300.0, 200.0, 100.0, 50.0), 10.0, rows_per_unit=4)
    assert found.share == (0.0, round(high / (high + 650 - 44), 6))
    people = "SELECT placed, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY placed"
    chosen = of_noisy(people, (300.0, 200.0, 100.0, 50.0), 10.0, groups_per_unit=4)
    assert chosen.share == (0.0, round(high / (high + 650 - 88), 6))


def test_declared_groups_have_no_lower_end_since_rows_outside_their_domain_are_in_the_profile() -> None:
    grouped = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"
    assert of(grouped, DECLARED, released=(300.0, 200.0), rows_per_unit=4).lost == (0, upper(4))
    plan = question(grouped, DECLARED).cores[0]
    assert (plan.keys_declared, plan.whole_table, plan.bounds.clip) == (True, True, "l1")


def test_words_say_what_figures_are_of() -> None:
    """Of all groups together, and of the rows that are there after the import."""
    whole = of("SELECT COUNT(*) AS n FROM orders", rows_per_unit=4)
    kept = "The prepared copy keeps at most 32 rows of orders of one customer; what the import left out is not counted"
    assert kept in whole.words
    assert "together" not in whole.words
    for call in ("COUNT(*)", "SUM(amount)", "COUNT(DISTINCT customer_id)"):
        grouped = of(f"SELECT placed, {call} AS n FROM orders GROUP BY placed", rows_per_unit=4, groups_per_unit=2)
        assert "in all groups together" in grouped.words
        assert kept in grouped.words
    nothing = of("SELECT COUNT(*) AS n FROM orders", rows_per_unit=32)
    assert nothing.words.startswith("The bounds leave nothing out. The prepared copy keeps at most 32 rows of orders")
    assert kept in of("SELECT COUNT(*) * 2 AS n FROM orders", rows_per_unit=32).words
    both = of("SELECT COUNT(*) AS n FROM orders o JOIN visits v ON o.customer_id = v.visitor", rows_per_unit=64)
    assert "at most 32 rows of orders and 2 rows of visits of one customer" in both.words
    assert of("SELECT COUNT(*) AS n FROM customers").words == "The bounds leave nothing out.", "one row each"


def test_groups_share_what_is_lost() -> None:
    found = of("SELECT status, COUNT(*) AS n FROM orders GROUP BY status", released=(300.0, 200.0), rows_per_unit=4)
    assert found.lost == (0, upper(4)), "keys that are not declared may take rows with them"
    assert found.share == (0.0, round(upper(4) / (upper(4) + 500), 6))


def test_before_there_is_an_answer_the_share_is_of_the_table() -> None:
    found = of("SELECT COUNT(*) AS n FROM orders", rows_per_unit=4)
    assert found.share is not None
    assert found.share_of == "table"
    true = 60 * 0 + 40 * 4 + 20 * 12 + 10 * 28, 100 + 160 + 240 + 160 + 80 + 40  # all at their upper edges
    assert found.share[0] <= true[0] / (true[0] + true[1]) <= found.share[1]


def test_a_public_fan_out_multiplies() -> None:
    joined = "SELECT COUNT(*) AS n FROM orders o JOIN holidays h ON o.placed = h.on_day"
    assert question(joined).cores[0].reach == Reach("orders", 3)
    assert of(joined, rows_per_unit=12).lost == (0, upper(12, 3))
    crossed = "SELECT COUNT(*) AS n FROM orders CROSS JOIN holidays"
    assert question(crossed).cores[0].reach == Reach("orders", 9)
    unique = "SELECT COUNT(*) AS n FROM items i JOIN products p ON i.product_id = p.product_id"
    assert question(unique).cores[0].reach == Reach("items"), "an item has one product"


def test_a_private_join_multiplies_by_the_most_of_the_other_table() -> None:
    both = "SELECT COUNT(*) AS n FROM orders o JOIN visits v ON o.customer_id = v.visitor"
    assert of(both, rows_per_unit=8).lost == (0, upper(8, 2))
    known = {name: size for name, size in SIZES.items() if name != "visits"}
    assert of(both, replace(SHOP, sizes=known), rows_per_unit=8).lost is None
    assert question(both, replace(SHOP, sizes=known)).cores[0].bounds.rows_per_unit == 20


def test_a_left_join_adds_the_row_that_meets_nothing() -> None:
    left = "SELECT COUNT(*) AS n FROM customers c LEFT JOIN orders o ON c.customer_id = o.customer_id"
    assert question(left).cores[0].reach == Reach("orders", constant=1)
    many = "SELECT COUNT(*) AS n FROM orders o LEFT JOIN holidays h ON o.placed = h.on_day"
    assert question(many).cores[0].reach == Reach("orders", 3)


def test_both_sides_of_a_union_count() -> None:
    twice = "SELECT COUNT(*) AS n FROM (SELECT amount FROM orders UNION ALL SELECT amount FROM orders) t"
    assert question(twice).cores[0].reach == Reach("orders", 2)


def test_a_sum_lacks_at_most_its_largest_value_per_row() -> None:
    found = of("SELECT SUM(amount) AS s FROM orders", released=(5_000.0,), rows_per_unit=4)
    assert found.amount == str(upper(4) * 1000)
    assert found.share is None
    assert "its share is not known" in found.words
    capped = of("SELECT SUM(amount) AS s FROM orders", unit_sum={"orders.amount": Fraction(100)})
    assert (capped.lost, capped.share) == (None, None)


@pytest.mark.parametrize("call", ["AVG(amount)", "MEDIAN(amount)", "STDDEV(amount)"])
def test_an_average_is_shifted_and_loses_no_share(call: str) -> None:
    found = of(f"SELECT {call} AS x FROM orders", released=(40.0,), rows_per_unit=4)
    assert found.lost is not None
    assert found.share is None
    assert "shifted" in found.words


def test_people_are_missing_from_groups_not_from_the_whole() -> None:
    assert of("SELECT COUNT(DISTINCT customer_id) AS n FROM orders", rows_per_unit=1).lost == (0, 0)
    grouped = "SELECT placed, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY placed"
    found = of(grouped, released=(90.0, 80.0), groups_per_unit=2)
    assert found.lost == (0, upper(2))
    assert found.share == (0.0, round(upper(2) / (upper(2) + 170), 6))
    few = (
        "SELECT country, COUNT(DISTINCT o.customer_id) AS n FROM orders o"
        " JOIN customers c ON o.customer_id = c.customer_id GROUP BY country"
    )
    assert of(few, groups_per_unit=2).lost == (0, upper(2, most=3)), "there are three countries"
    assert of(few, groups_per_unit=3).lost == (0, 0)


def test_totals_per_unit_are_clamped_and_nobody_knows_by_how_much() -> None:
    per = "SELECT {} AS x FROM (SELECT customer_id, COUNT(*) AS k FROM orders GROUP BY customer_id) p"
    assert of(per.format("AVG(k)")).lost is None
    assert of(per.format("COUNT(*)")).lost == (0, 0), "each customer is there once"


def test_computed_values_say_what_they_are_computed_from() -> None:
    found = of("SELECT SUM(amount) / COUNT(*) AS mean FROM orders", rows_per_unit=4)
    assert (found.lost, found.share) == (None, None)
    assert "Computed from bounded values" in found.words
    assert of("SELECT COUNT(*) * 2 AS n FROM customers").share == (0.0, 0.0)


def test_without_sizes_it_is_not_known() -> None:
    bare = replace(SHOP, sizes={})
    for sql in (
        "SELECT COUNT(*) AS n FROM orders",
        "SELECT status, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY status",
    ):
        found = of(sql, bare, released=(10.0,))
        assert (found.lost, found.share) == (None, None)
        assert "not known" in found.words
    assert of("SELECT COUNT(*) AS n FROM customers", bare).share == (0.0, 0.0), "one row of a customer"


def test_a_bound_at_the_most_leaves_nothing_out() -> None:
    assert of("SELECT COUNT(*) AS n FROM orders", rows_per_unit=32).share == (0.0, 0.0)


@contextmanager
def profiled_clinic(folder: Path, table: pa.Table) -> Iterator[Walk]:
    """A clinic over these rows that declares no bounds, with one and the same profile."""
    with clinic(folder, table=table) as (books, walk):
        declared = DatasetDeclaration(unit="patient", epsilon="100", delta="1e-6")
        books.administration.put_dataset("clinic", declared, actor="test")
        put_size(books, "clinic", "visits", size_of_profile(Profile((225, 225, 450, 9), 3.0, "q_visits"), 16))
        yield walk


def test_nothing_of_it_depends_on_a_private_row(tmp_path: Path) -> None:
    """One patient's fifty rows more or less: the same bounds, the same words, the same figures but the released one."""
    heavy = pa.table({"patient": [7] * 50, "ward": ["a"] * 50, "town": ["t1"] * 50, "cost": [1] * 50})
    seen = []
    for name, rows in (("with", pa.concat_tables([visits(), heavy])), ("without", visits())):
        with profiled_clinic(tmp_path / name, rows) as walk:
            asked = []
            for sql in ("SELECT COUNT(*) AS n FROM visits", "SELECT ward, SUM(cost) AS c FROM visits GROUP BY ward"):
                ask = Ask("clinic", sql, Loss("epsilon", 10**12))
                before = walk.answerer.estimate(ask, ANALYST)
                answer = json.loads(walk.answerer.submit(ask, ANALYST, None, sql, 60).body or b"")
                said = [column["clipped"]["lost"] for column in answer["columns"] if column["role"] == "value"]
                asked.append([before, answer["receipt"]["bounds"], answer["notes"], said])
            seen.append(asked)
    assert seen[0] == seen[1]
