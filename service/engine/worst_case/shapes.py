"""What is known of rows before anybody looks at them: how many there are at most, in all and of one unit.

Everything here is an upper bound over all data of the public sizes, and stays one through joins, unions and grouping.
Conditions drop rows, so they never enter. A number is never made smaller because something is not known.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from service.core.prepared import UNIT_COLUMN, code_name, coded
from service.core.schema import Column, Scalar, SqlType, Table, UnitColumn
from service.core.sizes import PrivateSize, PublicSize, Size

TEXT_BYTES = 256  # of a text whose length nobody declared
STRAYS = 1_000  # groups of values beyond declared domains and ranges: imports keep such values, and tell the admin
NARROW = {"BOOLEAN": 1, "DATE": 4}
ENDLESS = 10**30  # rows: no engine ends with so many, so nothing beyond is told apart (and floats hold what follows)
INLINE = 12  # bytes of a text that are kept inside its entry


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """`sharing`: so many rows at most have one value, NULL aside (it joins with nothing). `values`: so many
    different ones, NULL included; None: as many as there are rows. `of_unit`: a function of the unit.
    `width`: bytes of one value; `text`: of the longest text, 0 for what is none."""

    sharing: int
    values: int | None = None
    of_unit: bool = False
    width: int = 8
    text: int = 0

    def distinct(self, rows: int) -> int:
        return rows if self.values is None else min(rows, self.values)


@dataclass(frozen=True, slots=True)
class Factor:
    """So many rows of something for every row of what came before it."""

    times: int
    of: str


@dataclass(frozen=True, slots=True)
class RowShape:
    """Rows at most, of at most `units` units (None: public rows), `most` of one unit, and `squares`, the sum over units
    of the square of their rows. `columns` by (name of the source, name of the column). `of` names what the
    rows begin with, `factors` what multiplies them."""

    rows: int
    units: int | None
    most: int
    squares: int
    columns: Mapping[tuple[str, str], ColumnFacts]
    of: str
    factors: tuple[Factor, ...] = ()
    aliases: frozenset[str] = frozenset()

    @property
    def private(self) -> bool:
        return self.units is not None

    def named(self, alias: str) -> "RowShape":
        """The shape as a source of that name."""
        columns = {(alias, column): facts for (_, column), facts in self.columns.items()}
        return replace(self, columns=columns, aliases=frozenset({alias}))

    def within(self, *, rows: int, most: int) -> "RowShape":
        """The same rows, of which something more is known."""
        if rows >= self.rows and most >= self.most:
            return self
        rows, most = min(rows, self.rows), min(most, self.most)
        factors = () if rows < self.rows else self.factors
        return replace(self, rows=rows, most=most, squares=min(self.squares, rows * most), factors=factors)


def scanned(name: str, size: Size, table: Table | None, wanted: set[str]) -> RowShape:
    """The `wanted` columns of a prepared table; `table` is what was declared of it, None where that is not known."""
    if isinstance(size, PublicSize):
        columns = {
            column: ColumnFacts(
                min(size.rows, size.most_of_one_value.get(column, size.rows)),
                size.rows + 1,
                width=_width(column, table, size),
                text=_text(column, table, size),
            )
            for column in wanted
        }
        return _source(RowShape(size.rows, None, size.rows, size.rows**2, {}, name), columns)
    whole = RowShape(size.rows, size.units, min(size.most, size.rows), size.squares, {}, name)
    columns = {UNIT_COLUMN: ColumnFacts(whole.most, size.units, of_unit=True)}
    if table is None:
        return _source(whole, columns)
    for column in wanted - {UNIT_COLUMN}:
        columns[column] = _private_column(column, table, size)
    return _source(whole, columns)


def _source(shape: RowShape, columns: Mapping[str, ColumnFacts]) -> RowShape:
    return replace(shape, columns={("", column): facts for column, facts in columns.items()})


def _private_column(name: str, table: Table, size: PrivateSize) -> ColumnFacts:
    declared = table.columns.get(name)
    if declared is None:  # a code or the rank
        code = next((column for column in coded(table) if code_name(column.name) == name), None)
        values = None if code is None else code.high_code - code.low_code + 2
        return ColumnFacts(size.rows, values)
    leads = table.unit is not None and table.unit.column == name  # to the unit: rows that share it are one unit's
    sharing = 1 if declared.unique else min(size.most, size.rows) if leads else size.rows
    own = leads and isinstance(table.unit, UnitColumn)
    width, text = _width(name, table, None), _text(name, table, None)
    return ColumnFacts(sharing, declared_values(declared), of_unit=own, width=width, text=text)


def declared_values(column: Column) -> int | None:
    """So many values a column of this declaration holds, NULL included, STRAYS aside."""
    if column.type.name == "BOOLEAN":
        return 3
    if column.domain is not None:
        return len(column.domain) + 1
    whole = column.type.name in ("BIGINT", "DATE") and column.low is not None and column.high is not None
    if whole and column.low is not None and column.high is not None:
        return math.ceil(column.high - column.low) + 2
    return None


def _text(name: str, table: Table | None, size: PublicSize | None) -> int:
    """Bytes of the longest text of a stored column."""
    if size is not None and name in size.text_bytes:
        return size.text_bytes[name]
    declared = None if table is None else table.columns.get(name)
    if declared is None or declared.type.name != "VARCHAR":
        return 0
    return _longest(declared.max_bytes, declared.domain)


def _width(name: str, table: Table | None, size: PublicSize | None) -> int:
    if size is not None and name in size.text_bytes:
        return text_width(size.text_bytes[name])
    declared = None if table is None else table.columns.get(name)
    if declared is None:
        return 8
    return type_width(declared.type, declared.max_bytes, declared.domain)


def type_width(kind: SqlType, max_bytes: int | None, domain: tuple[Scalar, ...] | None = None) -> int:
    """Bytes of one value in the engine's memory. Short texts need no more than their own entry."""
    if kind.name == "VARCHAR":
        return text_width(_longest(max_bytes, domain))
    return 16 if kind.name == "DECIMAL" and (kind.precision or 38) > 18 else NARROW.get(kind.name, 8)


def text_width(longest: int) -> int:
    return 16 + (0 if longest <= INLINE else longest)


def _longest(max_bytes: int | None, domain: tuple[Scalar, ...] | None) -> int:
    longest = TEXT_BYTES if max_bytes is None else max_bytes
    return longest if domain is None else min(longest, max((4 * len(str(item)) for item in domain), default=0))


# --- Joining ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equality: the sources that it reads, and the column, where it is one and nothing else."""

    aliases: frozenset[str]
    column: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Link:
    """An equality that every joined row keeps. Equality drops NULL, so a row meets at most `sharing` others."""

    left: Side
    right: Side

    def onto(self, here: RowShape, there: RowShape) -> int | None:
        """How many rows of `there` one row of `here` meets at most; None: this says nothing about the two."""
        found = [
            there.columns[b.column].sharing
            for a, b in ((self.left, self.right), (self.right, self.left))
            if b.column is not None and b.column in there.columns and a.aliases and a.aliases <= here.aliases
        ]
        return min(found, default=None)

    @property
    def of_units(self) -> bool:
        return all(side.column is not None and side.column[1] == UNIT_COLUMN for side in (self.left, self.right))


def met(here: RowShape, there: RowShape, links: list[Link], *, on_unit: bool) -> tuple[int, int]:
    """How many rows of `there` one row of `here` meets at most, and the other way round."""
    forth, back = there.rows, here.rows
    for link in links:
        forth = min(forth, _or(link.onto(here, there), forth))
        back = min(back, _or(link.onto(there, here), back))
    if on_unit and here.private and there.private:
        forth, back = min(forth, there.most), min(back, here.most)
    return forth, back


def _or(found: int | None, otherwise: int) -> int:
    return otherwise if found is None else found


def inner_join(here: RowShape, there: RowShape, links: list[Link], *, on_unit: bool) -> RowShape:
    """An inner join. Two private sides are joined on the unit (`on_unit`, invariant P2)."""
    forth, back = met(here, there, links, on_unit=on_unit)
    rows = min(here.rows * forth, there.rows * back, ENDLESS)
    both = here.private and there.private
    if both and on_unit:
        rows = min(rows, math.isqrt(here.squares * there.squares))
    mosts = [side.most * times for side, times in ((here, forth), (there, back)) if side.private]
    units = min((side.units for side in (here, there) if side.units is not None), default=None)
    most = min([*mosts, rows]) if units is not None else rows
    if units is not None:
        rows = min(rows, units * most)
    squares = [side.squares * times**2 for side, times in ((here, forth), (there, back)) if side.private]
    columns = _scaled(here, forth, rows) | _scaled(there, back, rows)
    of, factors = here.of, (*here.factors, Factor(forth, there.of), *there.factors)
    if there.rows * back < here.rows * forth:
        of, factors = there.of, (*there.factors, Factor(back, here.of), *here.factors)
    aliases = here.aliases | there.aliases
    return RowShape(rows, units, most, min([*squares, most * rows]), columns, of, factors, aliases)


def left_joined(here: RowShape, there: RowShape, links: list[Link], *, on_unit: bool) -> RowShape:
    """A left join: every row of `here` stays, once where it meets nothing."""
    forth, back = met(here, there, links, on_unit=on_unit)
    forth = max(1, forth)
    rows = min(here.rows * forth, here.rows + there.rows * back, ENDLESS)
    most = min(here.most * forth, rows)
    columns = _scaled(here, forth, rows) | _null_extended(_scaled(there, back, rows))
    factors = (*here.factors, Factor(forth, there.of), *there.factors)
    aliases = here.aliases | there.aliases
    squares = min(here.squares * forth**2, most * rows)
    return RowShape(rows, here.units, most, squares, columns, here.of, factors, aliases)


def _scaled(side: RowShape, times: int, rows: int) -> dict[tuple[str, str], ColumnFacts]:
    """The columns of one side after a join that repeats its rows so many times."""
    return {
        name: replace(facts, sharing=min(rows, facts.sharing * max(1, times))) for name, facts in side.columns.items()
    }


def _null_extended(columns: Mapping[tuple[str, str], ColumnFacts]) -> dict[tuple[str, str], ColumnFacts]:
    """NULL is one more value, and a unit may have both."""
    return {
        name: replace(facts, values=None if facts.values is None else facts.values + 1, of_unit=False)
        for name, facts in columns.items()
    }


def in_best_order(sources: list[RowShape], links: list[Link], *, on_unit: bool) -> list[RowShape]:
    """The inner join of all sources, one shape per step, in the order that proves the smallest number of rows.

    The order of the sources never changes the rows, so every order proves a bound. Tried are: from each private
    source (else from each), always the one next that multiplies least.
    """
    best: list[RowShape] = []
    starts = [source for source in sources if source.private] or sources
    for start in starts:
        steps, waiting = [start], [source for source in sources if source is not start]
        while waiting:
            tried = [(inner_join(steps[-1], source, links, on_unit=on_unit), source) for source in waiting]
            shape, source = min(tried, key=lambda pair: pair[0].rows)
            steps.append(shape)
            waiting = [other for other in waiting if other is not source]
        if not best or steps[-1].rows < best[-1].rows:
            best = steps
    return best


class NotBounded(Exception):
    """Nothing is said of these rows: a table's size is not known, or the tree has a part that this room does not know.
    What is not known is never taken to be small."""
