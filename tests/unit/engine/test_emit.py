"""How needs become statements: grouping, columns, widths, and totality on extreme codes."""

from dataclasses import replace
from math import isqrt

import duckdb
import pytest

from service.core.plan import (
    ONE,
    BoundsNeed,
    CandidatesNeed,
    DistinctNeed,
    HistogramNeed,
    KeysNeed,
    L2Weight,
    Measure,
    MomentsNeed,
    Need,
    Plan,
    RowBound,
    RowsWeight,
    UnitsNeed,
    UnitSumWeight,
    UnitTotalsNeed,
)
from service.core.schema import BIGINT
from service.engine.emit.spelling import choice, root
from service.engine.emit.statements import emit
from tests.fixtures.prepared import fetch
from tests.fixtures.visits import HIGH, LOW, answer, open_hospital, scan_plan, visit

WEIGHT = RowsWeight(2)
EVERY_NEED: tuple[Need, ...] = (
    MomentsNeed(None, 0, WEIGHT),
    MomentsNeed("m0", 2, WEIGHT, LOW, HIGH),
    MomentsNeed("m0", 1, L2Weight(2), LOW, HIGH),
    MomentsNeed("m0", 1, UnitSumWeight(5), LOW, HIGH),
    HistogramNeed("m0", LOW, 2, 7, WEIGHT),
    CandidatesNeed("d0", WEIGHT),
    DistinctNeed("d0", 2),
    UnitsNeed(2),
    KeysNeed("units", 2, 1),
    KeysNeed("weighted", 2, 2),
    KeysNeed("shared", 2, 2),
    KeysNeed("rows", 2, 2),
    BoundsNeed("m0", 1, 4),
    UnitTotalsNeed("m0", 3, 5),
)


def test_moments_of_one_weight_share_a_statement() -> None:
    needs = (MomentsNeed(None, 0, WEIGHT), MomentsNeed("m0", 1, WEIGHT, LOW, HIGH), MomentsNeed("m1", 0, WEIGHT))
    ((statement, answered),) = emit(scan_plan(), needs, salt=1)
    assert answered == needs
    assert statement.columns == ("*.n", "m0.n", "m0.s1", "m1.n")
    assert statement.uses_keys


def test_moments_of_other_weights_or_other_clamps_do_not() -> None:
    needs = (
        MomentsNeed("m0", 1, WEIGHT, LOW, HIGH),
        MomentsNeed("m0", 1, WEIGHT, 0, 5),
        MomentsNeed("m0", 1, L2Weight(2), LOW, HIGH),
        MomentsNeed("m0", 1, UnitSumWeight(2), LOW, HIGH),
    )
    assert [answered for _, answered in emit(scan_plan(), needs, salt=1)] == [(need,) for need in needs]


def test_every_need_is_answered_by_exactly_one_statement_with_the_columns_it_promises() -> None:
    plan = scan_plan()
    with open_hospital([visit(1), visit(1, "b", -4, 1), visit(1, None, None, None), visit(2)]) as connection:
        emitted = emit(plan, EVERY_NEED, salt=1)
        assert sorted(map(str, (need for _, needs in emitted for need in needs))) == sorted(map(str, EVERY_NEED))
        for statement, needs in emitted:
            found = fetch(connection, statement)  # checks the names
            if isinstance(needs[0], MomentsNeed | UnitsNeed | DistinctNeed):
                assert {len(values) for values in found.values()} == {4}, "dense: one row per key"


@pytest.mark.parametrize("grouped", [True, False])
def test_over_no_rows_every_dense_cell_is_zero(grouped: bool) -> None:
    needs = tuple(need for need in EVERY_NEED if isinstance(need, MomentsNeed | UnitsNeed | DistinctNeed | BoundsNeed))
    with open_hospital([]) as connection:
        for statement, _ in emit(scan_plan(grouped=grouped), needs, salt=1):
            found = fetch(connection, statement)
            assert all(value == 0 for values in found.values() for value in values)
            assert all(values for values in found.values()), "no GROUP BY: always exactly one row"


def test_a_plan_with_at_most_b_rows_per_unit_by_its_shape_needs_no_correction() -> None:
    plan = replace(scan_plan(), row_bound=RowBound(2, ()))
    ((statement, _),) = emit(plan, (MomentsNeed(None, 0, WEIGHT),), salt=1)
    assert "#heavy" not in statement.sql
    ((statement, _),) = emit(replace(plan, row_bound=RowBound(3, ())), (MomentsNeed(None, 0, WEIGHT),), salt=1)
    assert "#heavy" in statement.sql


def test_the_index_of_sums_is_read_only_where_it_bounds_the_sum() -> None:
    need = MomentsNeed("m0", 1, UnitSumWeight(5), LOW, HIGH)
    ((statement, _),) = emit(scan_plan(), (need,), salt=1)
    assert '"pay#abs" > 5' in statement.sql
    ((statement, _),) = emit(scan_plan(), (replace(need, low=2, high=7),), salt=1)  # |clamp(0)| = 2 > |0|
    assert "#abs" not in statement.sql


def wide_plan(largest: int) -> Plan:
    plan = scan_plan(grouped=False)
    measure = Measure("m0", BIGINT, plan.measures[0].step, -largest, largest, "wide")
    rows = plan.rows.copy()
    rows.set("expressions", [e for e in rows.expressions if e.alias_or_name != "m0"])
    rows = rows.select(f'CAST({largest} AS BIGINT) * CASE WHEN "tag" = 1 THEN 1 ELSE -1 END AS "m0"')
    return replace(plan, rows=rows, measures=(measure, plan.measures[1]))


@pytest.mark.parametrize(("largest", "degree"), [(2**32, 2), (2**31 - 1, 2), (2**61 - 1, 1), (2**42, 1)])
def test_the_widest_codes_neither_raise_nor_wrap(largest: int, degree: int) -> None:
    rows = [visit(1, tag=0)] * 5 + [visit(2, tag=1)]
    plan = wide_plan(largest)
    weight = ONE * 2 // 5
    with open_hospital(rows) as connection:
        found = answer(connection, plan, MomentsNeed("m0", degree, WEIGHT, -largest, largest))
        assert found["m0.s1"] == [largest * (ONE - 5 * weight)]
        if degree == 2:
            assert found["m0.s2"] == [largest**2 * (ONE + 5 * weight)]
        capped = answer(connection, plan, MomentsNeed("m0", 1, UnitSumWeight(largest), -largest, largest))
        assert capped["m0.us"] == [largest * (ONE - 5 * (ONE // 5))]
        answer(connection, plan, HistogramNeed("m0", -largest + 1, 2 * largest, 1, WEIGHT))
        answer(connection, plan, BoundsNeed("m0", 1, 62))
        answer(connection, plan, UnitTotalsNeed("m0", largest, 3))


def test_codes_too_wide_to_square_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        emit(wide_plan(2**33), (MomentsNeed("m0", 2, WEIGHT, -(2**33), 2**33),), salt=1)


def test_a_domain_that_lists_a_value_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        emit(scan_plan(domain=("a", "a")), (MomentsNeed(None, 0, WEIGHT),), salt=1)


def test_the_integer_root_is_exact_around_every_kind_of_square() -> None:
    values = [0, 1, 2, 3, 2**40, 2**40 - 1]
    values += [s * s + d for s in (2, 3, 1000, 2**19 + 1, 2**20 - 1, 741455) for d in (-1, 0, 1)]
    with duckdb.connect() as connection:
        for value in values:
            assert connection.execute(f"SELECT {root(str(value))}").fetchall() == [(isqrt(value),)]


def test_choices_differ_by_salt_by_unit_and_by_the_order_of_parts() -> None:
    with duckdb.connect() as connection:

        def chosen(salt: int, key: int, *parts: str) -> int:
            (found,) = connection.execute(f"SELECT {choice(salt, f'CAST({key} AS UBIGINT)', parts)}").fetchone() or (0,)
            assert isinstance(found, int)
            return found

        seen = {
            chosen(1, 5, "3", "4"),
            chosen(1, 5, "4", "3"),
            chosen(2, 5, "3", "4"),
            chosen(1, 9, "3", "4"),
            chosen(1, 5, "NULL", "4"),
            chosen(1, 5, "4", "NULL"),
            chosen(2**64 - 1, 5, "3", "4"),
        }
        assert len(seen) == 7
        orders = {tuple(sorted(range(8), key=lambda g: chosen(9, unit, str(g)))) for unit in range(30)}
        assert len(orders) == 30, "the order of groups must differ from unit to unit"
