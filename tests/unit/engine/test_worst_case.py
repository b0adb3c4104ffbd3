"""What is said of a question at worst: rows of every shape, seconds, bytes, and the words for them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from sqlglot import exp

from service.core.amounts import PICO
from service.core.errors import ServiceError
from service.core.plan import DistinctNeed, KeysNeed, Loss, MomentsNeed, Need, Plan, RowsWeight
from service.core.request import Ask, AskedBounds
from service.core.schema import BIGINT, BOOLEAN, DATE, VARCHAR, Column, Defaults, Schema, Table, UnitColumn, UnitVia
from service.core.sizes import PrivateSize, Profile, PublicSize, Size, size_of_profile
from service.engine.base import WorstCase
from service.engine.worst_case.loads import USUAL
from service.engine.worst_case.predict import Machine, at_worst
from service.engine.worst_case.rows import bounded_rows
from service.engine.worst_case.shapes import RowShape
from service.privacy.accounting.costs import open_terms
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan
from service.sql.understand import understand
from tests.fixtures.sql import shop
from tests.fixtures.sql.corpus import accepted

DEADLINE = 60.0
CHILD_BYTES = 2 * 2**30
MACHINE = Machine(USUAL, workers=2, threads=2, cores=2)


def table(name: str, unit: UnitColumn | UnitVia | None, *columns: Column) -> Table:
    return Table(name, {column.name: column for column in columns}, unit)


PEOPLE = table(
    "people", UnitColumn("person"), Column("person", BIGINT, unique=True), Column("name", VARCHAR),
    Column("salary", BIGINT, Fraction(0), Fraction(100_000), Fraction(1)), Column("vip", BOOLEAN),
    Column("kind", VARCHAR, domain=("a", "b")),
)  # fmt: skip
SALES = table(
    "sales", UnitColumn("person"), Column("sale", BIGINT, unique=True), Column("person", BIGINT), Column("day", DATE),
    Column("shop", BIGINT),
)  # fmt: skip
LINES = table("lines", UnitVia("sale", "sales", "sale"), Column("sale", BIGINT), Column("part", BIGINT))
CAL = table("cal", None, Column("day", DATE, unique=True), Column("month", BIGINT), Column("label", VARCHAR))
SCHEMA = Schema("d", "person", {t.name: t for t in (PEOPLE, SALES, LINES, CAL)}, defaults=Defaults(rows_per_unit=1))
SIZES: dict[str, Size] = {
    "people": PrivateSize(10_000, 10_000, 1),
    "sales": PrivateSize(50_000, 10_000, 20),
    "lines": PrivateSize(200_000, 9_000, 100),
    "cal": PublicSize(4_000, {"day": 1, "month": 31, "label": 4_000}, {"label": 9}),
}


def plan_of(sql: str) -> Plan:
    (plan,) = understand(Ask("d", sql), SCHEMA).cores
    return plan


def shape_of(sql: str, sizes: Mapping[str, Size] = SIZES) -> RowShape:
    return bounded_rows(plan_of(sql), sizes).shape


def predicted(sql: str, *needs: Need, groups: int | None = 1, sizes: Mapping[str, Size] = SIZES) -> WorstCase:
    found = at_worst(plan_of(sql), needs or (MomentsNeed(None, 0, RowsWeight(1)),), sizes, groups, MACHINE)
    assert found is not None
    return found


ROWS = {
    "a scan": ("people", 10_000),
    "a condition, which passes every row": ("people WHERE person = 7 AND salary > 5", 10_000),
    "a product with a public table": ("people CROSS JOIN cal", 10_000 * 4_000),
    "a join on a unique public column": ("sales s JOIN cal c ON s.day = c.day", 50_000),
    "a join on a public column whose values repeat": ("sales s JOIN cal c ON s.shop = c.month", 50_000 * 31),
    "the same, with a computed value on the private side": ("sales s JOIN cal c ON s.shop + 1 = c.month", 50_000 * 31),
    "a computed value on the public side says nothing": ("sales s JOIN cal c ON s.shop = c.month + 1", 50_000 * 4_000),
    "an inequality says nothing": ("sales s JOIN cal c ON s.day < c.day", 50_000 * 4_000),
    "nor does one branch of an OR": ("sales s JOIN cal c ON s.day = c.day OR s.shop = 1", 50_000 * 4_000),
    "a left join keeps every row": ("sales s LEFT JOIN cal c ON s.day = c.day", 50_000),
    "a left join on nothing": ("people LEFT JOIN cal ON TRUE", 10_000 * 4_000),
    "one row of each unit with all of its others": ("people p JOIN sales s ON p.person = s.person", 50_000),
    "rows of a unit with each other": ("sales a JOIN sales b ON a.person = b.person", 50_000 * 20),
    "through a unique key": ("sales s JOIN lines l ON s.sale = l.sale", 200_000),
    "a union": ("(SELECT person, shop FROM sales UNION ALL SELECT person, salary FROM people) t", 60_000),
    "one row per unit": ("(SELECT person, COUNT(*) AS n FROM sales GROUP BY person) t", 10_000),
    "one row per unit and one of few values": (
        "(SELECT p.person, p.vip, COUNT(*) AS n FROM people p JOIN sales s ON p.person = s.person"
        " GROUP BY p.person, p.vip) t",
        30_000,
    ),
    "one row per unit and any value": ("(SELECT person, shop, MAX(sale) FROM sales GROUP BY person, shop) t", 50_000),
    "a semi-join": ("people WHERE person IN (SELECT person FROM sales)", 10_000),
    "a subquery of a subquery": (
        "(SELECT person, n FROM (SELECT person, COUNT(*) AS n FROM sales GROUP BY person) a WHERE n > 1) b"
        " CROSS JOIN cal",
        10_000 * 4_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "rows"), ROWS.values(), ids=ROWS.keys())
def test_rows_of_a_shape(source: str, rows: int) -> None:
    assert shape_of(f"SELECT COUNT(*) FROM {source}").rows == rows


def test_a_profile_bounds_a_join_on_the_unit_by_its_squares() -> None:
    """A thousand people with one row, one with sixty-four: 1,000·1 + 64·64 pairs, not 1,064·64."""
    profile = Profile((1_000, 0, 0, 0, 0, 0, 1), 0.0, "q")
    sizes = {**SIZES, "sales": size_of_profile(profile, 64)}
    assert shape_of("SELECT COUNT(*) FROM sales a JOIN sales b ON a.person = b.person", sizes).rows == 1_000 + 64 * 64


def test_through_a_unique_key_inside_a_subquery_where_no_row_bound_helps() -> None:
    inner = "SELECT s.person, s.shop, COUNT(*) AS n FROM sales s JOIN lines l ON s.sale = l.sale GROUP BY 1, 2"
    assert shape_of(f"SELECT COUNT(*) FROM ({inner}) t CROSS JOIN cal").rows == 200_000 * 4_000


# --- WorstCase ------------------------------------------------------------------------------------

ATTACK = "FROM people CROSS JOIN cal a CROSS JOIN cal b WHERE person = 6284 AND salary > 65535"


def test_the_fan_out_that_told_salaries_takes_far_longer_than_any_deadline_and_is_named() -> None:
    found = predicted(f"SELECT COUNT(*) {ATTACK}")
    assert found.seconds > 10 * DEADLINE
    assert found.largest == "4,000 × 4,000 rows of cal for every row of people"
    assert "cal" in found.remedy


def test_and_on_the_fastest_machine_there_is() -> None:
    """A hundred times faster than the defaults in all."""
    fast = Machine({operator: value / 100 for operator, value in USUAL.items()}, 1, 64, 64)
    found = at_worst(plan_of(f"SELECT COUNT(*) {ATTACK}"), (MomentsNeed(None, 0, RowsWeight(1)),), SIZES, 1, fast)
    assert found is not None
    assert found.seconds > DEADLINE


def test_distinct_values_over_the_fan_out_need_more_memory_than_a_child_has() -> None:
    plan = plan_of(f"SELECT COUNT(DISTINCT a.label) {ATTACK}")
    found = at_worst(plan, (DistinctNeed(plan.attributes[0].name, 1),), SIZES, 1, MACHINE)
    assert found is not None
    assert found.memory_bytes > 100 * CHILD_BYTES


def test_a_condition_that_reads_the_rows_around_it_is_tested_on_every_pair_as_in_a_join() -> None:
    heavy = "LENGTH(CONCAT(p.name, c.label)) + p.salary < 0"
    joined = predicted(f"SELECT COUNT(*) FROM people p CROSS JOIN cal c WHERE {heavy}")
    inside = predicted(f"SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM cal c WHERE {heavy})")
    assert inside.seconds > joined.seconds / 4
    assert inside.largest == "4,000 rows of cal for every row of people"


def test_every_level_of_nested_subqueries_multiplies_the_rows_around_it() -> None:
    def nested(levels: int) -> WorstCase:
        test = " + ".join(f"c{at}.month" for at in range(levels)) + " + p.salary < 0"
        for at in range(levels):
            test = f"EXISTS (SELECT 1 FROM cal c{at} WHERE {test})"
        return predicted(f"SELECT COUNT(*) FROM people p WHERE p.person = 6284 AND {test}")

    one, two, three = (nested(levels).seconds for levels in (1, 2, 3))
    assert two > 1_000 * one and three > 1_000 * two
    assert nested(3).largest == "4,000 × 4,000 × 4,000 rows of cal for every row of people"


def per_person(text: str, used: str) -> str:
    """A question over a text that is made per person, so that nothing of it is known but its length."""
    return f"SELECT {used} FROM (SELECT person, MAX({text}) AS t FROM people GROUP BY person) x CROSS JOIN cal c"


def test_texts_are_as_long_as_what_they_are_made_of_also_of_literals_alone() -> None:
    short = predicted(per_person("CASE WHEN salary > 9 THEN 'a' ELSE '' END", "COUNT_IF(t LIKE '%b%')"))
    long = predicted(per_person(f"CASE WHEN salary > 9 THEN '{'a' * 1000}' ELSE '' END", "COUNT_IF(t LIKE '%b%')"))
    assert long.seconds > 5 * short.seconds
    assert long.memory_bytes > short.memory_bytes + 10_000 * 900
    twice = predicted(per_person(f"CONCAT('{'a' * 500}', '{'b' * 500}')", "COUNT_IF(t LIKE '%b%')"))
    assert twice.memory_bytes > long.memory_bytes * 0.9


def test_a_pattern_that_is_tried_at_every_place_costs_its_length_and_one_that_is_searched_for_does_not() -> None:
    text = f"'{'a' * 1000}'"
    searched, stepped, either = (
        predicted(per_person(text, f"COUNT_IF(t {test})")).seconds
        for test in (f"LIKE '%{'a' * 90}b%'", f"LIKE '%{'a' * 90}_b%'", f"ILIKE '%{'a' * 90}b%'")
    )
    assert stepped > 5 * searched and either > 5 * searched


def test_a_cast_that_may_fail_is_counted_as_if_it_always_did() -> None:
    cast = predicted("SELECT COUNT(*) FROM people CROSS JOIN cal WHERE CAST(CONCAT(name, label) AS DATE) IS NULL")
    plain = predicted("SELECT COUNT(*) FROM people CROSS JOIN cal WHERE CONCAT(name, label) IS NULL")
    assert cast.seconds - plain.seconds > 40_000_000 * USUAL["fail"] / 1e9


def test_products_without_end_are_still_numbers() -> None:
    sizes = {**SIZES, "cal": PublicSize(10**200)}
    found = predicted("SELECT COUNT(*) FROM people, cal a, cal b, cal c, cal d", sizes=sizes)
    assert DEADLINE < found.seconds < float("inf")


def test_an_ordinary_question_takes_little() -> None:
    found = predicted("SELECT kind, COUNT(*) FROM people GROUP BY kind", groups=2)
    assert found.seconds < 1
    assert found.memory_bytes < CHILD_BYTES / 4
    assert found.largest == "10,000 rows of people"


def test_rows_of_a_unit_that_meet_each_other_are_named_with_what_to_write_instead() -> None:
    found = predicted("SELECT COUNT(*) FROM sales a JOIN sales b ON a.person = b.person")
    assert found.largest == "20 rows of sales for every row of sales"
    assert "aggregate sales per unit first" in found.remedy


def test_private_keys_may_all_be_groups_of_their_own() -> None:
    found = predicted("SELECT name, COUNT(*) FROM people GROUP BY name", KeysNeed("units", 1, 1), groups=None)
    few = predicted("SELECT vip, COUNT(*) FROM people GROUP BY vip", KeysNeed("units", 1, 1), groups=None)
    assert found.seconds > few.seconds
    assert found.memory_bytes > few.memory_bytes


def test_what_the_service_does_with_every_private_key_is_counted() -> None:
    """Six million candidates: their judging alone takes seconds on the machine of the defaults."""
    sizes = {**SIZES, "people": PrivateSize(6_000_000, 6_000_000, 1)}
    sql = "SELECT name, COUNT(*) FROM people GROUP BY name"
    found = predicted(sql, KeysNeed("units", 1, 1), groups=None, sizes=sizes)
    assert found.seconds > 6_000_000 * (USUAL["candidate"] + USUAL["name"]) / 1e9


def test_longer_texts_take_more_time_and_memory() -> None:
    def with_bytes(most: int) -> WorstCase:
        plan = plan_of("SELECT name, COUNT(*) FROM people GROUP BY name")
        keys = tuple(replace(key, max_bytes=most) for key in plan.keys)
        columns = {**PEOPLE.columns, "name": replace(PEOPLE.columns["name"], max_bytes=most)}
        wider = replace(plan, keys=keys, tables={"people": replace(PEOPLE, columns=columns)})
        found = at_worst(wider, (KeysNeed("units", 1, 1),), SIZES, None, MACHINE)
        assert found is not None
        return found

    short, long = with_bytes(100), with_bytes(10_000)
    assert long.seconds > short.seconds
    assert long.memory_bytes > 10 * short.memory_bytes


def test_a_table_of_unknown_size_is_not_taken_to_be_small() -> None:
    sizes = {name: size for name, size in SIZES.items() if name != "cal"}
    needs = (MomentsNeed(None, 0, RowsWeight(1)),)
    assert at_worst(plan_of("SELECT COUNT(*) FROM people CROSS JOIN cal"), needs, sizes, 1, MACHINE) is None
    assert at_worst(plan_of("SELECT COUNT(*) FROM people"), needs, sizes, 1, MACHINE) is not None
    inside = "SELECT COUNT(*) FROM sales WHERE EXISTS (SELECT 1 FROM cal WHERE cal.day = sales.day)"
    assert at_worst(plan_of(inside), needs, sizes, 1, MACHINE) is None


@pytest.mark.parametrize("strange", ["limit", "laterals", "qualify", "distinct", "with_"])
def test_a_tree_with_a_part_that_is_not_known_is_not_predicted(strange: str) -> None:
    plan = plan_of("SELECT COUNT(*) FROM people")
    rows = plan.rows.copy()
    rows.set(strange, exp.Limit(expression=exp.Literal.number(1)) if strange != "laterals" else [exp.Lateral()])
    assert at_worst(replace(plan, rows=rows), (MomentsNeed(None, 0, RowsWeight(1)),), SIZES, 1, MACHINE) is None


def test_a_join_of_a_kind_that_is_not_known_is_not_predicted() -> None:
    plan = plan_of("SELECT COUNT(*) FROM people CROSS JOIN cal")
    rows = plan.rows.copy()
    rows.args["joins"][0].set("kind", "ASOF")
    assert at_worst(replace(plan, rows=rows), (MomentsNeed(None, 0, RowsWeight(1)),), SIZES, 1, MACHINE) is None


def test_workers_beyond_the_cores_are_counted_and_two_of_them_are_not() -> None:
    assert Machine(USUAL, workers=2, threads=2, cores=2).crowding == 1
    assert Machine(USUAL, workers=8, threads=4, cores=4).crowding == 4
    assert Machine(USUAL, workers=8, threads=1, cores=16).crowding == 1


# --- Contract: larger tables never take less -------------------------------------------------------

TERMS = open_terms(10 * PICO, 10**12, keys_declared=False)
SHOP_SIZES: dict[str, Size] = {
    "customers": PrivateSize(1_000, 1_000, 1),
    "orders": PrivateSize(30_000, 900, 100),
    "items": PrivateSize(90_000, 800, 400),
    "visits": PrivateSize(5_000, 700, 30),
    "products": PublicSize(100, {"product_id": 1, "kind": 30, "cost": 2}, {"kind": 20}),
    "stores": PublicSize(20, {"store": 1, "city": 4}, {"city": 20}),
    "holidays": PublicSize(30, {"on_day": 2, "label": 3}, {"label": 20}),
}


def _grown(size: Size) -> Size:
    if isinstance(size, PrivateSize):
        return PrivateSize(3 * size.rows, 2 * size.units, size.most if size.most == 1 else 2 * size.most)
    more = {name: n if n == 1 else 2 * n for name, n in size.most_of_one_value.items()}
    return PublicSize(4 * size.rows, more, {name: 2 * n for name, n in size.text_bytes.items()})


def _priced(sql: str) -> tuple[PricedPlan, ...]:
    bounds = AskedBounds(rows_per_unit=2, groups_per_unit=1)
    try:
        query = understand(Ask("shop", sql, bounds=bounds), shop.SCHEMA)
        return price(query, Loss("epsilon", PICO, 10**9), TERMS).plans
    except ServiceError:
        return ()


@pytest.mark.parametrize("sql", accepted())
def test_larger_tables_and_more_groups_never_take_less(sql: str) -> None:
    for priced in _priced(sql):
        stages: list[tuple[Need, ...]] = [priced.bounds_needs, priced.value_needs()]
        stages += [(priced.keys_need,)] if priced.keys_need is not None else []
        for needs in stages:
            small = at_worst(priced.plan, needs, SHOP_SIZES, 10, MACHINE)
            assert small is not None, "every accepted question can be predicted"
            more = at_worst(priced.plan, needs, SHOP_SIZES, 10_000, MACHINE)
            assert more is not None
            assert (more.seconds, more.memory_bytes) >= (small.seconds, small.memory_bytes)
            for name, size in SHOP_SIZES.items():
                grown = at_worst(priced.plan, needs, {**SHOP_SIZES, name: _grown(size)}, 10, MACHINE)
                assert grown is not None
                assert grown.seconds >= small.seconds, name
                assert grown.memory_bytes >= small.memory_bytes, name


def test_every_size_that_a_question_reads_is_needed() -> None:
    """The broken twin of the contract: a prediction that looks at one table alone would not move with the others."""
    (priced,) = _priced("SELECT COUNT(*) FROM orders o JOIN visits v ON o.customer_id = v.visitor CROSS JOIN stores")
    small = at_worst(priced.plan, priced.value_needs(), SHOP_SIZES, 1, MACHINE)
    assert small is not None
    for name in ("orders", "visits", "stores"):
        grown = {**SHOP_SIZES, name: _grown(SHOP_SIZES[name])}
        found = at_worst(priced.plan, priced.value_needs(), grown, 1, MACHINE)
        assert found is not None
        assert found.seconds > small.seconds
