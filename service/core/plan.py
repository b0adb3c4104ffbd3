"""One question, understood: what the SQL front end hands to pricing, emission and release.

A Query is one or more private cores (Plan) and the free outer SQL over what they release. A Plan is declarative: rows
with a hidden unit, keys to group them by, integer measures to add up, and the aggregates to derive. Pricing turns the
aggregates into Needs: what the engine must compute. sqlglot trees occur only in `Plan.rows` and `Outer`; they are built
by the binder, never the analyst's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from service.core.aggregates import AggregateSpec
from service.core.reach import Reach
from service.core.schema import Scalar, SqlType, Table

ONE_BITS = 20
ONE = 1 << ONE_BITS  # the weight of a row of a light unit


@dataclass(frozen=True, slots=True)
class RowBound:
    """At most `constant` + Σ over `tables` of the unit's rows in that prepared table.

    A table may be listed twice (UNION ALL of it with itself). Invariant P1: this holds for every unit
    on every data, by the shape of the plan alone. No RowBound at all means: count after the joins.
    """

    constant: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A GROUP BY expression: column `name` (k0, k1, …) of `Plan.rows`, in canonical form.

    Declared when `domain` lists its values, or `public` names the public (table, column) whose
    distinct values they are. Neither: the keys are private and must be selected.
    """

    name: str
    type: SqlType
    label: str
    domain: tuple[Scalar, ...] | None = None
    public: tuple[str, str] | None = None
    max_bytes: int | None = None  # of a text, inferred; None: no text, or not known

    @property
    def declared(self) -> bool:
        return self.domain is not None or self.public is not None


@dataclass(frozen=True, slots=True)
class Measure:
    """An integer per row: column `name` (m0, m1, …) of `Plan.rows`; NULL rows contribute nothing.

    The column holds codes already clamped to [low, high]; the value is code * step. A measure that is only counted has
    low = high = 1. NaN, FILTER and CASE have become NULL already. `disjoint` = (family, member): measures of one family
    and different members are never non-NULL in the same row. `auto`: bounds are found privately inside [low, high].
    """

    name: str
    type: SqlType  # of the value
    step: Fraction
    low: int
    high: int
    label: str
    disjoint: tuple[str, str] | None = None
    auto: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value of any type per row: column `name` (d0, d1, …) of `Plan.rows`, canonical like a key.
    COUNT(DISTINCT …) and MODE read it. MODE needs `domain`."""

    name: str
    type: SqlType
    label: str
    domain: tuple[Scalar, ...] | None = None
    max_bytes: int | None = None  # of a text, inferred; None: no text, or not known


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Column `name` (a0, a1, …) of the released table.

    `argument` names a Measure or an Attribute, whichever the function is taken of, or is None: every row, or every
    unit. `p` is a quantile's rank. Equal aggregates are one.
    """

    name: str
    function: AggregateSpec
    argument: str | None
    type: SqlType
    label: str
    p: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one unit counts. One frozen object: emission and pricing read the same."""

    rows_per_unit: int
    groups_per_unit: int
    clip: Literal["l1", "l2"] = "l1"
    unit_sum: Mapping[str, Fraction | None] = field(default_factory=dict)  # by measure; None: find it
    min_units: int = 1
    slots: Literal["pairs", "rows"] = "pairs"  # how undeclared keys are counted (docs/mechanisms.md)


@dataclass(frozen=True, slots=True)
class Plan:
    """One private core.

    `rows` is a SELECT over prepared tables that yields exactly: UNIT_COLUMN, the keys k*, the measures m*, the
    attributes d*. Invariant P2: every row belongs to exactly one unit, and a unit's rows are a function of that unit's
    rows and of public tables alone. `digest` names the question without bounds and price: two spellings of one
    question share it.
    """

    rows: exp.Select
    row_bound: RowBound | None
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    attributes: tuple[Attribute, ...]
    aggregates: tuple[Aggregate, ...]
    bounds: Bounds
    digest: str
    expected_rows: int | None = None
    expected_groups: int | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)  # the declarations of what `rows` reads, by name
    reach: Reach | None = None  # rows of one unit by public sizes; None: not known
    whole_table: bool = False  # its rows are all rows of one table, each once
    clamped_totals: bool = False  # it reads counts or sums per unit, which are clamped inside

    @property
    def keys_declared(self) -> bool:
        return all(key.declared for key in self.keys)


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer.

    `direct` = (core, column): the output is that released column and nothing else. `uses` lists every
    aggregate it depends on. `expression` is the output over one core's columns when the outer SQL is
    row-wise: intervals come from evaluating it on replicas.
    """

    name: str
    role: Literal["key", "value"]
    type: SqlType | None
    direct: tuple[int, str] | None = None
    uses: tuple[tuple[int, str], ...] = ()
    expression: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    """The free SQL over released tables core_0, core_1, … and public tables; runs in the scratch engine.

    `row_wise`: one core, every output row is one of its rows; then the SELECT also yields POSITION as
    its last column, which tells the intervals where a row came from.
    """

    select: exp.Expression
    outputs: tuple[Output, ...]
    row_wise: bool
    public_tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """What one request asks of one dataset."""

    dataset: str
    cores: tuple[Plan, ...]
    outer: Outer
    notes: tuple[str, ...] = ()


# --- What the request pays -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accuracy:
    output: str  # is wanted within ± half_width, with this confidence
    half_width: Fraction
    confidence: Fraction


@dataclass(frozen=True, slots=True)
class Loss:
    """What the analyst offers. `amount` is pico of epsilon, rho or share; 0 when `accuracy` decides."""

    kind: Literal["epsilon", "rho", "share", "accuracy"]
    amount: int
    delta: int = 0  # atto, the part that selecting undeclared keys may use
    accuracy: Accuracy | None = None
    weights: Mapping[str, Fraction] = field(default_factory=dict)  # by output name


# --- What the engine must compute ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsWeight:
    """w = (ONE·rows_per_unit) // max(c, rows_per_unit), c the unit's rows in Plan.rows.

    Where keys were selected they are public by then, and c counts the rows inside them only: nobody's allowance is
    wasted on groups that were dropped. Σw over what is summed stays within ONE·rows_per_unit either way.
    """

    rows_per_unit: int


@dataclass(frozen=True, slots=True)
class L2Weight:
    """w = min(ONE, isqrt((ONE²·bound²) // Σ_g v_g²)), v_g the unit's rows in group g of the key table."""

    bound: int


@dataclass(frozen=True, slots=True)
class UnitSumWeight:
    """w = (ONE·cap) // max(Σ|x|, cap), Σ|x| over the unit's rows, in codes of the one measure summed."""

    cap: int


Weight = RowsWeight | L2Weight | UnitSumWeight


@dataclass(frozen=True, slots=True)
class MomentsNeed:
    """Per key: Σw over non-NULL rows (`{m}.n`), Σw·x (`{m}.s1`, degree >= 1), Σw·x² (`{m}.s2`, degree 2).

    `measure` None: every row, degree 0, column `*.n`. Under UnitSumWeight only `{m}.us` = Σw·x.
    `low`/`high` may be narrower than the measure's: then codes are clamped again.
    """

    measure: str | None
    degree: int
    weight: Weight
    low: int = 1
    high: int = 1


@dataclass(frozen=True, slots=True)
class HistogramNeed:
    """Sparse per key: Σw (RowsWeight) of rows whose code falls in bin (x - low) // width.
    Exact columns: POSITION, `bin`, `weight`."""

    measure: str
    low: int
    width: int
    bins: int
    weight: RowsWeight


@dataclass(frozen=True, slots=True)
class CandidatesNeed:
    """Sparse per key: Σw of rows whose attribute equals candidate i of its domain.
    Exact columns: POSITION, `bin` (= i), `weight`."""

    attribute: str
    weight: RowsWeight


@dataclass(frozen=True, slots=True)
class DistinctNeed:
    """Per key: distinct values of the attribute, each unit keeping at most `pairs_per_unit` distinct
    (group, value) pairs. Exact column `{d}.d`."""

    attribute: str
    pairs_per_unit: int


@dataclass(frozen=True, slots=True)
class UnitsNeed:
    """Per key: distinct units, each unit in at most `groups_per_unit` groups. Exact column `units`."""

    groups_per_unit: int


@dataclass(frozen=True, slots=True)
class KeysNeed:
    """The private keys with, per key, n units that kept it or their weighted sum, for
    selection (docs/mechanisms.md, "Selecting private keys").

    rule `units`: n counts units, at most `groups_per_unit` kept groups each (slots chosen first).
    rule `weighted`: a unit with j kept groups adds isqrt(ONE² // j) to each.
    rule `shared`: a unit with j kept groups adds ONE // j to each.
    rule `rows`: at most `groups_per_unit` rows per unit, each kept row adds ONE // kept rows.
    Exact column `n`; sealed keys k0, k1, …. For all but `units` also `units`, the units that kept it,
    when min_units > 1 (a group below it is never released).
    """

    rule: Literal["units", "weighted", "shared", "rows"]
    groups_per_unit: int
    min_units: int


@dataclass(frozen=True, slots=True)
class BoundsNeed:
    """Approximate bounds: one count per logarithmic bin over all rows, every unit of total weight <= ONE.

    Bin i in 0…m-1: code in [0, 1·scale] for i = 0, (scale·2^(i-1), scale·2^i] beyond; bin m+i mirrors it
    for negative codes. Exact column `weight`, one row per bin in order, 2m rows.
    """

    measure: str
    scale: int
    bins: int  # m


@dataclass(frozen=True, slots=True)
class UnitTotalsNeed:
    """Histogram of Σ|x| per unit (one value per unit, weight ONE): bin i counts totals in
    [i·width, (i+1)·width), the last bin everything beyond. Exact columns `bin`, `weight`; sparse."""

    measure: str
    width: int
    bins: int


Need = MomentsNeed | HistogramNeed | CandidatesNeed | DistinctNeed | UnitsNeed | KeysNeed | BoundsNeed | UnitTotalsNeed
