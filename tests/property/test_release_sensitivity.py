"""What one person can move is what the noise was made for: every shape, through the real engine."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.amounts import PICO
from service.core.boundary import Array
from service.core.plan import Bounds, Plan
from service.engine.emit.statements import emit
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.noised import CAPPED_SUM, Part
from service.privacy.release import exact_sums
from tests.fixtures.prepared import fetch, prepared, provide_keys
from tests.fixtures.visits import SCHEMA, WARDS, Visit, scan_plan, visit_rows
from tests.unit.privacy.questions import aggregate, priced

WANTED = {
    "count": (aggregate("count", None),),
    "sum": (aggregate("sum", "m0"),),
    "mean": (aggregate("avg", "m0"), aggregate("count", "m0")),
    "variance": (aggregate("stddev_samp", "m0"),),
    "root-mean-square": (aggregate("rms", "m0"), aggregate("sum", "m0")),
    "rows-mean": (aggregate("avg", "m0"), aggregate("count", None)),
    "rows-variance": (aggregate("var_pop", "m0"), aggregate("count", None)),
    "rows-count": (aggregate("count", "m0"), aggregate("count", None)),
    "filtered": (aggregate("count", "m1"), aggregate("avg", "m0")),
    "distinct": (aggregate("count_distinct", "d0"), aggregate("count_units", None)),
}


def coordinates(at: PricedPlan, rows: list[Visit]) -> dict[Part, Array]:
    """The exact coordinates of every part, as they stand before noise is added."""
    found: dict[str, Array] = {}
    with prepared(SCHEMA, {"visits": rows}) as connection:
        provide_keys(connection, [key.type for key in at.plan.keys], [(ward,) for ward in WARDS])
        for statement, _ in emit(at.plan, at.value_needs(), salt=7):
            found |= {name: np.array(values, dtype=object) for name, values in fetch(connection, statement).items()}
    result = {}
    for part in at.parts.values():
        sums = exact_sums(part, found, len(WARDS))
        result[part] = np.array([row.astype(object) for row in part.shape.exact(sums, part.at)])
    return result


def assert_within_claim(part: Part, moved: Array) -> None:
    """Σ|d|/size <= l1·reach, and Σ(d/size)² <= l2_squared·reach² (for units: at most k ones)."""
    sizes = part.shape.sizes(part.at)
    relative = [[Fraction(int(d), size) for d in row] for row, size in zip(moved, sizes, strict=True)]
    flat = [abs(value) for row in relative for value in row]
    reach = part.one * part.bound
    if part.clip != "l2":
        assert sum(flat) <= reach * part.shape.l1, part
    squared = part.bound if part.clip == "groups" else reach * reach
    assert sum(value * value for value in flat) <= squared * part.shape.l2_squared, part


def plan_of(wanted: str, bounds: Bounds) -> Plan:
    return replace(scan_plan(), aggregates=WANTED[wanted], bounds=bounds)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("wanted", list(WANTED))
@settings(max_examples=8, deadline=None)
@given(rows=visit_rows, bound=st.integers(1, 3))
def test_one_person_moves_every_released_vector_by_at_most_its_claim(
    law: Law, wanted: str, rows: list[Visit], bound: int
) -> None:
    at = priced(plan_of(wanted, Bounds(bound, bound)), law, PICO)
    without = [row for row in rows if row["person"] != rows[0]["person"]]
    before, after = coordinates(at, rows), coordinates(at, without)
    for part in before:
        assert_within_claim(part, before[part] - after[part])


@settings(max_examples=15, deadline=None)
@given(rows=visit_rows, cap=st.integers(1, 12))
def test_one_person_moves_a_capped_sum_by_at_most_the_cap(rows: list[Visit], cap: int) -> None:
    bounds = Bounds(4, 1, unit_sum={"m0": Fraction(cap)})
    at = priced(plan_of("sum", bounds), LAPLACE, PICO)
    without = [row for row in rows if row["person"] != rows[0]["person"]]
    before, after = coordinates(at, rows), coordinates(at, without)
    (part,) = before
    assert part.vector is CAPPED_SUM
    assert_within_claim(part, before[part] - after[part])


@pytest.mark.parametrize("wanted", ["count", "sum", "mean", "variance", "rows-mean", "rows-variance"])
@settings(max_examples=8, deadline=None)
@given(rows=visit_rows, bound=st.integers(1, 3))
def test_clip_l2_holds_every_vector_to_its_l2_claim(wanted: str, rows: list[Visit], bound: int) -> None:
    at = priced(plan_of(wanted, Bounds(bound, bound, clip="l2")), GAUSSIAN, PICO)
    without = [row for row in rows if row["person"] != rows[0]["person"]]
    before, after = coordinates(at, rows), coordinates(at, without)
    for part in before:
        assert_within_claim(part, before[part] - after[part])


def test_the_check_catches_a_range_that_is_too_narrow() -> None:
    """The broken twin: a part that believes in half the range claims less than one person moves."""
    rows = [{"person": 1, "ward": "a", "pay": 9, "tag": 0}]
    at = priced(plan_of("sum", Bounds(1, 1)), LAPLACE, PICO)
    ((part, moved),) = coordinates(at, rows).items()
    assert_within_claim(part, moved)
    with pytest.raises(AssertionError):
        assert_within_claim(replace(part, low=-4, high=4), moved)
