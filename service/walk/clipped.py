"""How much of an answer its bounds may leave out: bias, which no interval contains, said wherever the number is.

Bounds keep at most so many rows of one unit. How many rows that leaves out is known as far as a profile is
(service/core/reach.py): an interval in rows, of the question's tables as they were profiled. Under a condition its
upper end still holds. Of a count the share is at most lost / (lost + lower end of the released count); of a sum only
the amount is bounded, and an average is shifted rather than lowered. All figures are of all groups together, and of the
rows that the prepared copy keeps: what an import cut is in none of them, and the words say so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from service.core.aggregates import ReleasedAs
from service.core.amounts import show_fraction
from service.core.boundary import ReleasedColumn, ReleasedTable
from service.core.plan import Aggregate, Output, Plan, Query
from service.core.reach import Spread, Z, spread_of
from service.core.schema import Schema
from service.core.sizes import PrivateSize
from service.walk.defaults import basis_of

Things = Literal["rows", "values", "people in groups"]
NOT_KNOWN = "How much the bounds leave out is not known: the sizes of the tables are not."
NOTHING = "The bounds leave nothing out."
TOGETHER = ", in all groups together (one of them may lack a larger part of its own)"


@dataclass(frozen=True, slots=True)
class Clipped:
    """What the bounds leave out of one column. `lost` None: not known; `share` None: no share can be told.

    `share_of`: the share is of the released answer, or, before there is one, of the rows of the table.
    `amount`: the most that a sum can lack, as a decimal.
    """

    things: Things
    lost: tuple[int, int] | None
    words: str
    share: tuple[float, float] | None = None
    share_of: Literal["answer", "table"] | None = None
    amount: str | None = None

    @property
    def is_nothing(self) -> bool:
        return self.lost == (0, 0)

    def fields(self) -> dict[str, Any]:
        """As a column of an answer or an estimate carries it."""
        return {
            "clipped_share": None if self.share is None else self.share[1],
            "clipped": {
                "of": self.things,
                "lost": None if self.lost is None else list(self.lost),
                "share": None if self.share is None else list(self.share),
                "share_of": self.share_of,
                "amount": self.amount,
                "words": self.words,
            },
        }


def clipped(output: Output, query: Query, schema: Schema, released: Sequence[ReleasedTable] | None = None) -> Clipped:
    """What the bounds leave out of one value of the answer, or of the answer to come."""
    parts = [
        _of_aggregate(query.cores[core], aggregate, schema, None if released is None else released[core])
        for core, name in ([output.direct] if output.direct is not None else output.uses)
        for aggregate in query.cores[core].aggregates
        if aggregate.name == name
    ]
    if output.direct is not None and parts:
        return parts[0]
    if all(part.is_nothing for part in parts):
        return replace(_nothing("rows"), words=" ".join(dict.fromkeys(part.words for part in parts)) or NOTHING)
    if any(part.lost is None for part in parts):
        return Clipped("rows", None, f"Computed from bounded values. {NOT_KNOWN}")
    words = " ".join(dict.fromkeys(part.words for part in parts if not part.is_nothing))
    return Clipped("rows", None, f"Computed from bounded values; what that does to it is not known. {words}")


def _nothing(things: Things) -> Clipped:
    return Clipped(things, (0, 0), NOTHING, (0.0, 0.0))


def _of_aggregate(plan: Plan, aggregate: Aggregate, schema: Schema, released: ReleasedTable | None) -> Clipped:
    found = _of_kept_rows(plan, aggregate, schema, released)
    return found if found.lost is None else replace(found, words=f"{found.words}{_kept_words(plan, schema)}")


def _kept_words(plan: Plan, schema: Schema) -> str:
    """What the import may have cut before any bound: no figure has it in."""
    names = () if plan.reach is None or plan.reach.table is None else (plan.reach.table, *plan.reach.others)
    sizes = {name: size for name in names if isinstance(size := schema.sizes.get(name), PrivateSize)}
    if not sizes:
        return ""
    most = " and ".join(f"{size.most:,} rows of {name}" for name, size in sizes.items())
    return (
        f" The prepared copy keeps at most {most} of one {schema.unit}; what the import left out is not counted here."
    )


def _of_kept_rows(plan: Plan, aggregate: Aggregate, schema: Schema, released: ReleasedTable | None) -> Clipped:
    spread = None if plan.reach is None else spread_of(plan.reach, schema.sizes)
    if aggregate.function.released_as is ReleasedAs.UNITS:
        return _people(plan, spread, schema, _counted_by(plan, aggregate, released))
    if aggregate.function.additive and aggregate.argument in plan.bounds.unit_sum:
        return Clipped("rows", None, f"What the cap on the total of one {schema.unit} leaves out is not known.")
    if plan.clamped_totals and aggregate.argument is not None:
        words = f"Counts and sums per {schema.unit} are clamped; how much that leaves out is not known."
        return Clipped("rows", None, words)
    lost = None if spread is None else spread.lost(plan.bounds.rows_per_unit, whole=_is_whole(plan))
    things: Things = "values" if aggregate.function.released_as is ReleasedAs.DISTINCT else "rows"
    if spread is None or lost is None:
        return Clipped(things, None, NOT_KNOWN)
    if lost == (0, 0):
        return _nothing(things)
    words = lost_words(plan, schema.unit, lost, things)
    if aggregate.function.counts:
        low = lost[0] if aggregate.argument is None else 0
        basis = _counted_by(plan, aggregate, released) or _by_profile(plan, spread)
        return _counted(things, (low, lost[1]), words, basis)
    if aggregate.function.additive:
        return _summed(plan, aggregate, lost, words)
    shift = f"{words} This value is shifted by that towards {schema.unit}s with few rows; no share is lost."
    return Clipped("rows", lost, shift)


def _is_whole(plan: Plan) -> bool:
    """Does a unit have exactly its rows of one table? Then at least what the profile says is left out, too.

    Not with groups, declared or not: rows outside the declared values are in the profile and in no group.
    """
    return plan.whole_table and not plan.keys


# What a share is of: (fewest, most) that counted, and whether that was released or is by the profile.
ShareBasis = tuple[float, float, Literal["answer", "table"]]


def _counted_by(plan: Plan, aggregate: Aggregate, released: ReleasedTable | None) -> ShareBasis | None:
    """The ends between which all groups of a released count lie together. Each misses the count without noise in at
    most 2.5 % of all cases, and so does each end of what is lost: an end of the share holds at 95 %."""
    column = None if released is None else released.columns.get(aggregate.name)
    if column is None:
        return None
    total, half = float(column.values.sum()), _half_width(plan, aggregate, column)
    return max(0.0, total - half), max(0.0, total + half), "answer"


def _half_width(plan: Plan, aggregate: Aggregate, column: ReleasedColumn) -> float:
    """Of the sum over all groups. Their noise is independent, so its variances add up; but counts of people in groups
    that had to pass a threshold tend to be too high, each of them: there the widths add up."""
    if column.noise_std is None:
        return math.inf
    groups = len(column.values)
    chosen = aggregate.function.released_as is ReleasedAs.UNITS and not plan.keys_declared
    return float(math.ceil(Z * column.noise_std * (groups if chosen else math.sqrt(groups))))


def _by_profile(plan: Plan, spread: Spread) -> ShareBasis | None:
    counted = spread.counted(plan.bounds.rows_per_unit)
    return None if counted is None else (*counted, "table")


def _counted(things: Things, lost: tuple[int, int], words: str, basis: ShareBasis | None) -> Clipped:
    """lost / (lost + counted): the more is lost and the less counts, the larger."""
    if basis is None:
        return Clipped(things, lost, f"{words} Which share that is is not known.")
    fewest, most, of = basis
    share = (_part(lost[0], most), _part(lost[1], fewest))
    of_what = "of what would be counted without the bound" if of == "answer" else "of the table"
    at_least = f"at least {_percent(share[0])} and " if share[0] else ""
    return Clipped(things, lost, f"{words} That is {at_least}at most {_percent(share[1])} {of_what}.", share, of)


def _part(lost: float, counted: float) -> float:
    return 0.0 if lost == 0 else round(lost / (lost + counted), 6)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _summed(plan: Plan, aggregate: Aggregate, lost: tuple[int, int], words: str) -> Clipped:
    """A row adds at most its largest value, so the amount is bounded; what share that is depends on the rows."""
    measure = next(each for each in plan.measures if each.name == aggregate.argument)
    amount = show_fraction(lost[1] * max(abs(measure.low), abs(measure.high)) * measure.step)
    lacks, its = ("These sums together lack", "their") if plan.keys else ("This sum lacks", "its")
    return Clipped("rows", lost, f"{words} {lacks} at most {amount}; {its} share is not known.", amount=amount)


def _people(plan: Plan, spread: Spread | None, schema: Schema, counted: ShareBasis | None) -> Clipped:
    """Without groups everybody counts once. With them, nobody is in more groups than they have rows."""
    things: Things = "people in groups"
    if not plan.keys:
        return _nothing(things)
    basis = basis_of(plan, schema)
    groups = None if basis is None else basis.groups
    lost = None if spread is None else spread.lost(plan.bounds.groups_per_unit, most=groups)
    if lost is None:
        return Clipped(things, None, NOT_KNOWN)
    if lost == (0, 0):
        return _nothing(things)
    words = (
        f"One {schema.unit} counts in at most {plan.bounds.groups_per_unit} groups; by the profile at most"
        f" {lost[1]:,} times somebody is missing from a group{TOGETHER}."
    )
    return _counted(things, lost, words, counted)


def lost_words(plan: Plan, unit: str, lost: tuple[int, int], things: Things = "rows") -> str:
    """In a sentence: how many rows a bound leaves out."""
    number = f"between {lost[0]:,} and {lost[1]:,}" if lost[0] else f"at most {lost[1]:,}"
    heavy = f"{unit}s with more than {plan.bounds.rows_per_unit} rows"
    return f"By the profile {number} {things} of {heavy} do not count{TOGETHER if plan.keys else ''}."


def rows_lost(plan: Plan, schema: Schema) -> tuple[int, int] | None:
    """Rows of a core that its bound leaves out; None: not known."""
    spread = None if plan.reach is None else spread_of(plan.reach, schema.sizes)
    return None if spread is None else spread.lost(plan.bounds.rows_per_unit, whole=_is_whole(plan))
