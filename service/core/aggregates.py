"""Every aggregate that can be asked for, one entry each in AGGREGATES: nothing else knows them by name.

An entry says how SQL spells it, what it is taken of, of which type it is, what must be released for it and how it
follows from that. To add one, add an entry (and a mechanism in service/privacy, if what is released for it is new) and
tests; docs/supported-sql.md lists what `shown` says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from service.core.derivations import (
    NONE,
    ONCE,
    T1,
    Choice,
    Derivation,
    FromMoments,
    Linear,
    N,
    Rank,
    Ratio,
    Variance,
    evenly,
    sum_of_codes,
)
from service.core.schema import BIGINT, DOUBLE, SqlType


class ReleasedAs(Enum):
    """What is released for an aggregate."""

    MOMENTS = "n, Σx and Σx² of a measure, as far as they are needed"
    UNITS = "how many units there are"
    DISTINCT = "how many values of an attribute there are"
    CHOSEN = "a value chosen from a public grid, or among public candidates"


class TakenOf(Enum):
    """What an aggregate is taken of."""

    MEASURE = "an integer per row"
    ATTRIBUTE = "a value of any type per row"
    UNITS = "the units themselves"


@dataclass(frozen=True, slots=True, eq=False)
class AggregateSpec:
    """One aggregate: everything that is particular to it. Specs are compared by identity; there is one of each.

    `name` is in plan digests and stored releases: it never changes. `spellings` are SQL functions of one plain
    argument; other forms (COUNT(*), WITHIN GROUP …) are read in service/sql/read/aggregates.py. `result` is the type of
    the aggregate by the type of its argument.
    """

    name: str
    released_as: ReleasedAs
    taken_of: TakenOf
    derivation: Derivation
    result: Callable[[SqlType], SqlType]
    shown: tuple[str, ...]  # how docs/supported-sql.md writes it
    spellings: tuple[str, ...] = ()
    additive: bool = False  # a zero adds nothing to it, and what one unit adds may be capped
    needs_domain: bool = False  # it shows one of the declared values of its argument
    of_units: "AggregateSpec | None" = None  # what it is when its argument is the unit itself
    plain: str = ""  # the same of released values, where SQL engines have no name for it

    def __post_init__(self) -> None:
        assert (self.released_as is ReleasedAs.CHOSEN) == isinstance(self.derivation, Choice)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], "AggregateSpec"], tuple[str]]:
        """In another process too there is one of each."""
        return aggregate_named, (self.name,)

    @property
    def degree(self) -> int:
        """Of the highest moment that it reads; 0 where rows, units or values are only counted."""
        return self.derivation.degree

    @property
    def counts(self) -> bool:
        """Does it count rows, units or values? Then what lies between which bounds doesn't matter."""
        return isinstance(self.derivation, Linear) and self.degree == 0

    @property
    def bounded_in_rows(self) -> bool:
        """Is it rows that one unit may have too many of, rather than groups or values?"""
        return self.released_as in (ReleasedAs.MOMENTS, ReleasedAs.CHOSEN)

    @property
    def moments(self) -> FromMoments:
        """How it follows from counts and sums; not for what is chosen."""
        assert not isinstance(self.derivation, Choice)
        return self.derivation

    @property
    def choice(self) -> Choice:
        """How it is chosen; only for what is."""
        assert isinstance(self.derivation, Choice)
        return self.derivation


def bigint(of: SqlType) -> SqlType:
    return BIGINT


def double(of: SqlType) -> SqlType:
    return DOUBLE


def whole_or_double(of: SqlType) -> SqlType:
    return BIGINT if of.name == "BIGINT" else DOUBLE


def same_type(of: SqlType) -> SqlType:
    return of


def same_but_decimal(of: SqlType) -> SqlType:
    return of if of.name != "DECIMAL" else DOUBLE


def double_or_same(of: SqlType) -> SqlType:
    return DOUBLE if of.is_numeric else of


COUNTED = Linear(0, lambda origin: N)
MEAN = Ratio(
    degree=1,
    power=1,
    numerator=lambda origin: T1,
    offset=lambda origin: origin,
    within=lambda at: (at.low, at.high),
    usual=lambda at: at.width / 2 / 2,  # halfway from the centre to a bound
)
EXTREME = Fraction(1, 5)  # of the budget of MIN and MAX, for their intervals

COUNT = AggregateSpec(
    "count", ReleasedAs.MOMENTS, TakenOf.MEASURE, COUNTED, bigint, ("COUNT(*)", "COUNT(x)", "COUNT_IF(condition)")
)
COUNT_UNITS = AggregateSpec("count_units", ReleasedAs.UNITS, TakenOf.UNITS, COUNTED, bigint, ("COUNT(DISTINCT unit)",))
COUNT_DISTINCT = AggregateSpec(
    "count_distinct", ReleasedAs.DISTINCT, TakenOf.ATTRIBUTE, COUNTED, bigint,
    ("COUNT(DISTINCT x)", "APPROX_COUNT_DISTINCT(x)"), of_units=COUNT_UNITS,
)  # fmt: skip
SUM = AggregateSpec(
    "sum", ReleasedAs.MOMENTS, TakenOf.MEASURE, Linear(1, sum_of_codes), whole_or_double, ("SUM(x)",), ("SUM",),
    additive=True,
)  # fmt: skip
AVG = AggregateSpec("avg", ReleasedAs.MOMENTS, TakenOf.MEASURE, MEAN, double, ("AVG(x)",), ("AVG",))
MIN = AggregateSpec(
    "min", ReleasedAs.CHOSEN, TakenOf.MEASURE, Choice(Rank.LOWEST, EXTREME), same_but_decimal, ("MIN(x)",), ("MIN",)
)
MAX = AggregateSpec(
    "max", ReleasedAs.CHOSEN, TakenOf.MEASURE, Choice(Rank.HIGHEST, EXTREME), same_but_decimal, ("MAX(x)",), ("MAX",)
)
QUANTILE = AggregateSpec(
    "quantile", ReleasedAs.CHOSEN, TakenOf.MEASURE, Choice(Rank.ASKED, Fraction(1, 3)), double_or_same,
    ("MEDIAN(x)", "QUANTILE_CONT(x, p)", "QUANTILE_DISC(x, p)", "QUANTILE(x, p)", "APPROX_QUANTILE(x, p)",
     "PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY x)"),
)  # fmt: skip
MODE = AggregateSpec(
    "mode", ReleasedAs.CHOSEN, TakenOf.ATTRIBUTE, Choice(Rank.MOST_FREQUENT, NONE), same_type, ("MODE(x)",),
    needs_domain=True,
)  # fmt: skip


def of_spread(name: str, derivation: Variance, *spellings: str) -> AggregateSpec:
    return AggregateSpec(name, ReleasedAs.MOMENTS, TakenOf.MEASURE, derivation, double, spellings, spellings)


AGGREGATES: Mapping[str, AggregateSpec] = {
    spec.name: spec
    for spec in (
        COUNT,
        COUNT_UNITS,
        COUNT_DISTINCT,
        SUM,
        AVG,
        of_spread("var_pop", Variance(samples=False, root=False), "VAR_POP"),
        of_spread("var_samp", Variance(samples=True, root=False), "VAR_SAMP", "VARIANCE"),
        of_spread("stddev_pop", Variance(samples=False, root=True), "STDDEV_POP"),
        of_spread("stddev_samp", Variance(samples=True, root=True), "STDDEV_SAMP", "STDDEV"),
        AggregateSpec(
            "rms",
            ReleasedAs.MOMENTS,
            TakenOf.MEASURE,
            Ratio(
                degree=2,
                power=1,
                numerator=lambda origin: (NONE, 2 * origin, ONCE),  # Σx² = Σ(x - o)² + 2o·Σ(x - o) + o²·n
                offset=lambda origin: origin * origin,
                within=lambda at: (max(0, at.low, -at.high), at.magnitude),
                usual=evenly,
                root=True,
            ),
            double,
            shown=("RMS(x)",),
            spellings=("RMS",),
            plain="SQRT(AVG(x * x))",
        ),
        MIN,
        MAX,
        QUANTILE,
        MODE,
    )
}


def aggregate_named(name: str) -> AggregateSpec:
    return AGGREGATES[name]
