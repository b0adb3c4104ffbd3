"""Whatever the engine counted and whatever was asked: nothing raises, nothing leaves its bounds."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.amounts import PICO
from service.core.plan import ONE, Bounds, Loss, Plan
from service.core.prepared import POSITION
from service.core.schema import DOUBLE
from service.privacy.noise.laws import LAWS, Law
from service.privacy.pricing.price import price
from service.privacy.primitives.derive import derivable, derive
from tests.unit.privacy.questions import TERMS, aggregate, attribute, by_key, measure, plan, priced, question, released

FUNCTIONS = ("count", "sum", "avg", "rms", "var_pop", "var_samp", "stddev_pop", "stddev_samp")

codes = st.integers(-(10**18), 10**18)
ranges = st.tuples(codes, codes).map(sorted)
amounts = st.sampled_from([1000, PICO // 1000, PICO, 10**5 * PICO])
wanted = st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4, unique=True)


@st.composite
def moments(draw: st.DrawFn, low: int, high: int) -> dict[str, list[int]]:
    """Exact sums of some rows in [low, high] with whole weights, per group."""
    n, s1, s2 = [], [], []
    for _ in range(3):
        values = draw(st.lists(st.integers(low, high), max_size=4))
        weight = draw(st.integers(1, ONE))
        n.append(weight * len(values))
        s1.append(weight * sum(values))
        s2.append(weight * sum(value * value for value in values))
    return {"m0.n": n, "m0.s1": s1, "m0.s2": s2}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), at=ranges, functions=wanted, amount=amounts, law=st.sampled_from(LAWS))
def test_every_aggregate_of_any_rows_is_finite_and_inside_its_bounds(
    data: st.DataObject, at: list[int], functions: list[str], amount: int, law: Law
) -> None:
    low, high = at
    exact = {name: np.array(v, dtype=object) for name, v in data.draw(moments(low, high)).items()}
    core = plan(
        *(aggregate(f, "m0", DOUBLE if f != "count" else None) for f in functions),
        measures=(measure(low=low, high=high),), keys=by_key(3), bounds=Bounds(7, 1),
    )  # fmt: skip
    table = released(priced(core, law, amount), exact, 3)
    for name, column in table.columns.items():
        assert all(math.isfinite(value) for value in column.values.tolist()), name
        assert (column.low <= column.high).all(), name
    if "avg" in functions:
        column = table.columns["avg_m0"]
        for values in (column.values, column.low, column.high):
            assert ((values >= float(low)) & (values <= float(high))).all()
    if "rms" in functions:
        column = table.columns["rms_m0"]
        for values in (column.values, column.low, column.high):
            assert ((values >= 0) & (values <= float(max(abs(low), abs(high))))).all()
    if "var_pop" in functions:
        assert (table.columns["var_pop_m0"].values >= 0).all()


@settings(max_examples=40, deadline=None)
@given(functions=wanted, more=wanted, law=st.sampled_from(LAWS))
def test_what_was_released_answers_every_other_aggregate_it_can_express(
    functions: list[str], more: list[str], law: Law
) -> None:
    def core(names: list[str]) -> Plan:
        return plan(*(aggregate(f, "m0", DOUBLE) for f in names), measures=(measure(),), keys=by_key(2))

    exact = {"m0.n": [5 * ONE] * 2, "m0.s1": [70 * ONE] * 2, "m0.s2": [1500 * ONE] * 2}
    table = released(priced(core(functions), law), exact, 2)
    later = core(more)
    if derivable(later, table.primitives):
        again = derive(later, table.keys, table.primitives)
        for name in set(again.columns) & set(table.columns):
            assert again.columns[name].values.tolist() == table.columns[name].values.tolist()


@settings(max_examples=40, deadline=None)
@given(
    functions=wanted, amount=st.integers(10**4, 3 * PICO), rows=st.integers(1, 2**20), groups=st.integers(1, 50),
    weight=st.fractions(Fraction(1, 50), 50),
)  # fmt: skip
def test_a_pure_price_is_exact_and_the_same_twice(
    functions: list[str], amount: int, rows: int, groups: int, weight: Fraction
) -> None:
    core = plan(
        *(aggregate(f, "m0") for f in functions), aggregate("count", None), aggregate("count_distinct", "d0"),
        aggregate("count_units", None), measures=(measure(),), attributes=(attribute("d0", "a"),), keys=by_key(2),
        bounds=Bounds(rows, groups),
    )  # fmt: skip
    loss = Loss("epsilon", amount, weights={"count_all": weight})
    once, again = price(question(core), loss, TERMS), price(question(core), loss, TERMS)
    assert once.cost.orders[-1] == amount
    assert (once.cost, once.events, once.mechanisms) == (again.cost, again.events, again.mechanisms)
    assert all(finite <= amount for finite in once.cost.orders)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), at=ranges, amount=amounts, law=st.sampled_from(LAWS), many=st.booleans())
def test_every_chosen_value_of_any_rows_is_inside_its_interval_and_its_bounds(
    data: st.DataObject, at: list[int], amount: int, law: Law, many: bool
) -> None:
    low, high = at
    ranks = [Fraction(i, 26) for i in (range(27) if many else (0, 13, 26))]
    core = plan(
        *(aggregate("quantile", "m0", p=p) for p in ranks), aggregate("min", "m0"), aggregate("max", "m0"),
        measures=(measure(low=low, high=high, type=DOUBLE),), keys=by_key(3), bounds=Bounds(7, 1),
    )  # fmt: skip
    priced_core = priced(core, law, amount)
    bins = priced_core.chosen_values[0].bins
    cells = data.draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, bins - 1)), max_size=8))
    weights = [data.draw(st.sampled_from([1, ONE, 10**12 * ONE])) for _ in cells]
    exact = {
        POSITION: np.array([group for group, _ in cells], dtype=np.int64),
        "bin": np.array([bin_ for _, bin_ in cells], dtype=np.int64), "weight": np.array(weights, dtype=object),
    }  # fmt: skip
    for column in released(priced_core, exact, 3).columns.values():
        assert ((column.low <= column.values) & (column.values <= column.high)).all()
        assert ((column.low >= float(low)) & (column.high <= float(high))).all()
