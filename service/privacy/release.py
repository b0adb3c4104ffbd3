"""From exact integers to released values: the only place that opens a sealed table.

Every value is drawn once. Before a table is opened, what is about to be drawn is compared with what was
charged (invariant M1). A group without rows goes the same way as any other.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from service.core.boundary import Array, ExactTable, KeyTable, Primitive, ReleasedTable
from service.core.plan import Measure, Need, UnitTotalsNeed
from service.core.prepared import POSITION
from service.core.unsealing import unseal
from service.privacy.mechanisms.approximate_bounds import ApproximateBounds
from service.privacy.mechanisms.quantile import Histograms, RankDraw
from service.privacy.mechanisms.selection import decide
from service.privacy.mechanisms.vectors import Sums
from service.privacy.noise.exact_integers import combine, whole
from service.privacy.noise.sampling import NoiseSource
from service.privacy.pricing.priced import PricedPlan, ReleasedBounds, SelectedKeys, assert_covered
from service.privacy.pricing.profile_price import PricedProfile, assert_profile_covered
from service.privacy.primitives.chosen import ChosenValue, QuantileTree
from service.privacy.primitives.derive import derive
from service.privacy.primitives.noised import CAPPED_SUM, COUNT_OF_VALUES, EVERY_ROW, EVERY_UNIT, Part

REUSED = (
    "The number of people per group is the one its selection counted: at most groups_per_unit groups of a person"
    " count, and groups near the threshold are shown only when their noise was high."
)

Exacts = Iterable[tuple[tuple[Need, ...], ExactTable]]


def release_bounds(priced: PricedPlan, exacts: Exacts, noise: NoiseSource) -> ReleasedBounds:
    """Stage 0: bounds and caps that the plan asked to be found. Shown, and public from then on."""
    for part, draw in priced.bounds_stage.items():
        assert_covered(priced, part, draw.event)
    opened = unsealed(exacts)
    ranges: dict[str, tuple[int, int]] = {}
    caps: dict[str, int] = {}
    notes = []
    for part, draw in priced.bounds_stage.items():
        need, measure = priced.bounds_need(part), priced.measure(part.demand.source)
        columns = opened[need]
        if isinstance(draw, ApproximateBounds):
            found = draw.release(whole(columns["weight"]), noise)
            low, high = (max(measure.low, min(measure.high, code)) for code in found)
            ranges[measure.name] = low, high
            notes.append(f"Bounds found for {measure.label}: {shown(low, measure)} to {shown(high, measure)}.")
        else:
            assert isinstance(need, UnitTotalsNeed)
            weights = whole(columns["weight"])
            nowhere = np.zeros(weights.size, dtype=np.int64)
            bins = draw.release(Histograms(1, need.bins, nowhere, whole(columns["bin"]), weights), noise)
            caps[measure.name] = min(priced.widest_cap(measure), (int(bins[0]) + 1) * need.width)
            notes.append(f"Cap found for a unit's sum of {measure.label}: {shown(caps[measure.name], measure)}.")
    return ReleasedBounds(ranges, caps, tuple(notes))


def shown(code: int, measure: Measure) -> str:
    return f"{float(code * measure.step):.12g}"


def unsealed(exacts: Exacts) -> dict[Need, dict[str, Array]]:
    """The columns of every need. Here the tables are opened, once."""
    opened: dict[Need, dict[str, Array]] = {}
    for needs, table in exacts:
        columns, _ = unseal(table)
        opened |= dict.fromkeys(needs, columns)
    return opened


def release_keys(priced: PricedPlan, exact: ExactTable, noise: NoiseSource) -> SelectedKeys:
    """Stage 1: the group keys that may be named, in the order of the keys themselves."""
    assert priced.keys_stage is not None, "all keys are declared"
    part, rule = priced.keys_stage
    assert_covered(priced, part, rule.event)
    columns, sealed = unseal(exact)
    n = whole(columns["n"])
    units = whole(columns["units"]) if "units" in columns else None
    decision = decide(n, units, rule, noise)
    keys = {key.name: sealed[key.name][decision.named] for key in priced.plan.keys}
    counts = None if decision.counts is None else decision.counts[decision.named]
    return SelectedKeys(KeyTable(keys, int(decision.named.sum())), counts)


def release_primitives(
    priced: PricedPlan, selected: KeyTable | SelectedKeys, exacts: Exacts, noise: NoiseSource
) -> dict[Primitive, Array]:
    """The noisy primitives of stage 2: one draw each."""
    for paid, item in (*priced.drawn.items(), *priced.brackets.items()):
        assert_covered(priced, paid, item.event)
    keys = selected.keys if isinstance(selected, SelectedKeys) else selected
    opened = unsealed(exacts)
    assert all(need in opened for item in priced.drawn.values() for need in item.needs), "a need was not computed"
    primitives: dict[Primitive, Array] = {}
    for part in priced.parts.values():
        columns = {name: values for need in part.needs for name, values in opened[need].items()}
        primitives[part] = noised(part, columns, keys.size, noise)
    for value in priced.draws.values():
        primitives[value] = drawn(value, opened[value.needs[0]], keys.size, noise)
    for tree in priced.trees.values():
        primitives |= read_off(tree, opened[tree.needs[0]], keys.size, noise)
    if priced.counted_units is not None:
        assert isinstance(selected, SelectedKeys) and selected.counts is not None
        primitives[priced.counted_units] = selected.counts.reshape(1, -1)
    return primitives


def release_values(
    priced: PricedPlan,
    selected: KeyTable | SelectedKeys,
    exacts: Exacts,
    noise: NoiseSource,
    *,
    replicas: frozenset[str] = frozenset(),
) -> ReleasedTable:
    """Stage 2: every aggregate of the core over the public keys.

    `selected` are the declared keys, or what stage 1 released. `exacts` pairs the needs of each statement
    with its table, as emission grouped them. `replicas` names the aggregates to simulate copies of.
    """
    primitives = release_primitives(priced, selected, exacts, noise)
    keys = selected.keys if isinstance(selected, SelectedKeys) else selected
    released = derive(priced.plan, keys, primitives, replicas=replicas)
    counted = (REUSED,) if priced.counted_units is not None else ()
    return replace(released, notes=(*priced.found.notes, *counted, *released.notes))


def release_profile(priced: PricedProfile, exact: ExactTable, noise: NoiseSource) -> tuple[int, ...]:
    """Units of a table by their number of rows, one noisy count per bin."""
    assert_profile_covered(priced)
    columns, _ = unseal(exact)
    return priced.mechanism.release(whole(columns["units"]), noise)


def noised(part: Part, columns: dict[str, Array], groups: int, noise: NoiseSource) -> Array:
    """The coordinates of a part with their noise: (coordinates, groups) of integers."""
    sums = exact_sums(part, columns, groups)
    rows = []
    for exact, scale in zip(part.shape.exact(sums, part.at), part.scales, strict=True):
        added = part.law.draw(noise, scale, groups) if groups else exact  # no group passed the selection
        rows.append(combine((1, exact), (1, added)))
    if any(row.dtype == object for row in rows):
        rows = [row.astype(object) for row in rows]
    return np.stack(rows)


def drawn(value: ChosenValue, columns: dict[str, Array], groups: int, noise: NoiseSource) -> Array:
    """Codes per group (of an attribute: the number of the candidate): the choice, and its interval."""
    exact, draw = histograms(value, columns, groups), value.draw
    bins = draw.release(exact, noise)
    low = high = np.zeros(groups, dtype=np.int64)
    if value.around:
        assert isinstance(draw, RankDraw)
        low, high = value.edges(*value.bracket.release(exact, bins, draw.rank, noise))
    return np.stack([value.codes(bins), low, high])


def read_off(tree: QuantileTree, columns: dict[str, Array], groups: int, noise: NoiseSource) -> dict[Primitive, Array]:
    """As `drawn`, for all quantiles of a tree at once."""
    exact = histograms(tree.values[0], columns, groups)
    found = tree.mechanism.release(exact, [value.p for value in tree.values], noise)
    return {
        value: np.stack([value.codes(bins), *value.edges(low, high)])
        for value, (bins, low, high) in zip(tree.values, found, strict=True)
    }


def histograms(value: ChosenValue, columns: dict[str, Array], groups: int) -> Histograms:
    group, bins, weight = (whole(columns[name]) for name in (POSITION, "bin", "weight"))
    return Histograms(groups, value.bins, group, bins, weight)


def exact_sums(part: Part, columns: dict[str, Array], groups: int) -> Sums:
    """The exact sums of the part's source; zeros for what its shape does not read."""
    zeros = np.zeros(groups, dtype=np.int64)

    def column(name: str) -> Array:
        values = whole(columns[name])
        assert values.shape == (groups,), "one exact value per key"
        return values

    if part.source == EVERY_UNIT:
        return Sums(column("units"), zeros, zeros, zeros)
    if part.vector is COUNT_OF_VALUES:
        return Sums(column(f"{part.source}.d"), zeros, zeros, zeros)
    if part.source == EVERY_ROW:
        return Sums(column(f"{EVERY_ROW}.n"), zeros, zeros, zeros)
    if part.vector is CAPPED_SUM:
        return Sums(zeros, column(f"{part.source}.us"), zeros, zeros)
    names = ("n", "s1", "s2")[: part.vector.degree + 1]
    found = [column(f"{part.source}.{name}") for name in names]
    n, s1, s2 = found + [zeros] * (3 - len(found))
    return Sums(n, s1, s2, column(f"{EVERY_ROW}.n") if part.vector.with_rows else zeros)
