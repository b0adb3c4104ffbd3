"""Relations of the private core: scans, and what selecting, joining and grouping make of them.

Invariant P2 is kept here: every row of a private relation carries the unit's hidden code from the scan,
and joins of private relations equate it. The analyst can neither name nor drop it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from service.core.errors import BoundsMissing
from service.core.plan import RowBound
from service.core.prepared import UNIT_COLUMN, code_name
from service.core.reach import Reach
from service.core.request import Ask
from service.core.schema import Column, Schema, Table, UnitColumn, UnitVia
from service.core.sizes import PublicSize
from service.sql.expr.canonical import all_of, canonical_text
from service.sql.expr.ranges import clamp_code, half_away
from service.sql.expr.trees import aliased, name, subquery, table
from service.sql.expr.values import UNIT, Code, Range, Value

Fields = Mapping[str, Value]


@dataclass(slots=True)
class Context:
    """What one request carries through binding: the schema, the asked bounds, fresh names, notes."""

    schema: Schema
    ask: Ask
    names: int = 0
    known_bounds: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def alias(self) -> str:
        self.names += 1
        return f"t{self.names - 1}"

    def asked(self, key: str) -> tuple[bool, Range | None]:
        """The bound asked for a column: (was one asked for, the bound or None for: find it privately)."""
        self.known_bounds.add(key)
        if key in self.ask.bounds.unit_sum:
            self.known_bounds.add(key)
        if key not in self.ask.bounds.columns:
            return False, None
        bound = self.ask.bounds.columns[key]
        if bound is not None and bound[0] > bound[1]:
            raise BoundsMissing(f"the bounds of {key} are the wrong way round", {"remedy": "give [low, high]"})
        return True, bound


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of a FROM clause with their unit, before anything is selected. `unit` is None for public rows.

    `unique` holds the canonical text of columns that are unique in it, `one_row`: a unit has at most one
    row. `bound` is Invariant P1's bound, or None. `bare`: a scan and nothing else, so it may be null-extended.
    `crossed`: a unit of n rows may have up to n^crossed here, public fan-out aside. `reach`: how many rows a unit may
    have by public sizes. `public`: the size of a public table that is scanned here as it is. `clamped_totals`: a
    value of it may be a count or a sum per unit that was clamped.
    """

    source: exp.Expression
    aliases: frozenset[str]
    unit: exp.Column | None
    bound: RowBound | None
    joins: tuple[exp.Join, ...] = ()
    where: tuple[exp.Expression, ...] = ()
    unique: frozenset[str] = frozenset()
    one_row: bool = False
    bare: bool = False
    expected: int | None = None
    crossed: int = 0
    reach: Reach | None = None
    public: PublicSize | None = None
    clamped_totals: bool = False

    @property
    def private(self) -> bool:
        return self.unit is not None

    def select(self, outputs: list[exp.Expression]) -> exp.Select:
        """SELECT outputs FROM … WHERE …, conjuncts in canonical order."""
        chosen = exp.Select(expressions=outputs, from_=exp.From(this=self.source))
        if self.joins:
            chosen.set("joins", list(self.joins))
        where = all_of(list(self.where))
        if where is not None:
            chosen.set("where", exp.Where(this=where))
        return chosen


def scan(found: Table, context: Context) -> tuple[Relation, Fields]:
    """A prepared table under a name of ours, its columns with what the catalog declares of them."""
    alias = context.alias()
    fields = {column.name: _field(found, column, alias, context) for column in found.columns.values()}
    unit = name(UNIT_COLUMN, alias) if found.private else None
    keys = {column.name for column in found.columns.values() if column.unique} | _targets(found, context.schema)
    size = None if found.private else context.schema.sizes.get(found.name)
    relation = Relation(
        table(found.name, alias),
        frozenset({alias}),
        unit,
        _rows(found, keys),
        unique=frozenset(f"{alias}.{key}" for key in keys),
        one_row=_rows(found, keys) == RowBound(1, ()),
        bare=True,
        expected=found.expected_rows,
        crossed=int(found.private and _rows(found, keys) != RowBound(1, ())),
        reach=_reach(found, keys),
        public=size if isinstance(size, PublicSize) else None,
    )
    return relation, fields


def _rows(found: Table, keys: set[str]) -> RowBound | None:
    """One row per unit where the unit's own column is verified unique; else what the index counts."""
    if found.unit is None:
        return None
    alone = isinstance(found.unit, UnitColumn) and found.unit.column in keys
    return RowBound(1, ()) if alone else RowBound(0, (found.name,))


def _reach(found: Table, keys: set[str]) -> Reach | None:
    if found.unit is None:
        return None
    return Reach(None, constant=1) if _rows(found, keys) == RowBound(1, ()) else Reach(found.name)


def _targets(found: Table, schema: Schema) -> set[str]:
    """Columns that a declared foreign key points at: verified unique on every version."""
    units = (other.unit for other in schema.tables.values())
    return {unit.key for unit in units if isinstance(unit, UnitVia) and unit.table == found.name}


def unit_tokens(found: Table, column: str, schema: Schema) -> frozenset[str]:
    """Identities of the unit that a column carries: followed through foreign keys, never by name."""
    tokens: set[str] = set()
    here, at = found, column
    if found.columns[column].unique or column in _targets(found, schema):
        tokens.add(f"{found.name}.{column}")
    for _ in schema.tables:
        path = here.unit
        if isinstance(path, UnitColumn):
            return frozenset(tokens | {UNIT}) if path.column == at else frozenset(tokens)
        if path is None or path.column != at:
            return frozenset(tokens)
        tokens.add(f"{path.table}.{path.key}")
        here, at = schema.tables[path.table], path.key
    return frozenset(tokens)


def _field(found: Table, column: Column, alias: str, context: Context) -> Value:
    key = f"{found.name}.{column.name}"
    tokens = unit_tokens(found, column.name, context.schema) if found.private else frozenset[str]()
    value = Value(
        name(column.name, alias),
        column.type,
        domain=column.domain,
        public=None if found.private else (found.name, column.name),
        tokens=tokens,
        reads_unit=UNIT in tokens,
        reads=frozenset({key}),
        source=key,
        max_bytes=_text_bytes(found, column, context.schema),
    )
    asked, bound = context.asked(key)
    if column.low is not None and column.high is not None and column.step is not None:
        code = Code(name(code_name(column.name), alias), column.step, column.low_code, column.high_code)
        if bound is not None:
            code = clamp_code(code, half_away(bound[0] / code.step), half_away(bound[1] / code.step))
        return replace(
            value, code=code, range=(code.low * code.step, code.high * code.step), auto=asked and bound is None
        )
    if bound is not None and column.type.is_numeric:
        return replace(value, range=bound)
    if asked and bound is None:
        raise BoundsMissing(
            f"{key} has no declared outer range to search for bounds in",
            {"columns": key, "remedy": f'give bounds: "bounds": {{"columns": {{"{key}": [low, high]}}}}'},
        )
    return replace(value, lacking=frozenset({key}))


def _text_bytes(found: Table, column: Column, schema: Schema) -> int | None:
    """What the copy was cut to; of a public table also what its longest text was measured to have."""
    size = schema.sizes.get(found.name)
    measured = size.text_bytes.get(column.name) if isinstance(size, PublicSize) and not found.private else None
    known = [each for each in (column.max_bytes, measured) if each is not None]
    return min(known, default=None)


def materialise(relation: Relation, fields: Fields, context: Context) -> tuple[Relation, Fields]:
    """The relation as a derived table, where flattening would change the meaning (a null-extended side, UNION ALL)."""
    alias = context.alias()
    outputs: list[exp.Expression] = []
    if relation.unit is not None:
        outputs.append(aliased(relation.unit.copy(), UNIT_COLUMN))
    new: dict[str, Value] = {}
    for position, (label, value) in enumerate(fields.items()):
        new[label] = as_column(value, f"c{position}", alias)
        outputs.append(aliased(value.tree.copy(), f"c{position}"))
        if value.code is not None:
            outputs.append(aliased(value.code.tree.copy(), code_name(f"c{position}")))
    if not outputs:
        outputs.append(aliased(exp.Literal(this="1", is_string=False), "c0"))
    unique = {
        f"{alias}.c{i}" for i, value in enumerate(fields.values()) if canonical_text(value.tree) in relation.unique
    }
    made = Relation(
        subquery(relation.select(outputs), alias),
        frozenset({alias}),
        name(UNIT_COLUMN, alias) if relation.unit is not None else None,
        relation.bound,
        unique=frozenset(unique),
        one_row=relation.one_row,
        bare=True,
        expected=relation.expected,
        crossed=relation.crossed,
        reach=relation.reach,
        clamped_totals=relation.clamped_totals,
    )
    return made, new


def as_column(value: Value, label: str, alias: str) -> Value:
    """The value as a column of a derived table."""
    code = None if value.code is None else replace(value.code, tree=name(code_name(label), alias))
    return replace(value, tree=name(label, alias), code=code, constant=None)


def under_asked_bounds(value: Value, key: str, context: Context) -> Value:
    """A value of a subquery under the bounds that the request gives for its name."""
    asked, bound = context.asked(key)
    value = replace(value, source=value.source or key)
    if not asked or not value.numeric:
        return value
    if bound is None:
        return replace(value, auto=True)
    if value.code is None:
        return replace(value, range=bound, lacking=frozenset())
    step = value.code.step
    code = clamp_code(value.code, half_away(bound[0] / step), half_away(bound[1] / step))
    return replace(value, code=code, range=(code.low * step, code.high * step), lacking=frozenset())
