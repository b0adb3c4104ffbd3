"""Rows per unit: a SELECT grouped by the unit, inside the core.

in   SELECT uid, SUM(x) AS total, COUNT(*) … GROUP BY uid [, …] HAVING …
out  a derived table with the hidden unit, one row per unit (or per unit and key)

Why only these aggregates: a per-unit result must be a function of that unit's rows as a multiset. Integer
sums over codes, counts, minimum and maximum are; float sums, FIRST, LIST are not (they depend on row order,
hence on who else is there).
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from service.core.aggregates import AVG, COUNT, COUNT_DISTINCT, MAX, MIN, SUM, AggregateSpec
from service.core.plan import RowBound
from service.core.prepared import UNIT_COLUMN
from service.core.reach import Reach
from service.core.schema import BIGINT, DOUBLE, ROWS_PER_UNIT
from service.sql.expr import ranges
from service.sql.expr.canonical import canonical_key, canonical_text, conjuncts
from service.sql.expr.compiler import Compiler
from service.sql.expr.trees import aliased, binary, cast_to, name, number, subquery, when
from service.sql.expr.values import UNIT, Code, Value, derived, double_literal
from service.sql.read.aggregates import asked, is_aggregate
from service.sql.read.output_names import sql_as_written
from service.sql.read.select import SelectParts
from service.sql.refusals import missing_bounds, refused
from service.sql.rows.bind import Rows, RowScope
from service.sql.rows.relations import Context, Relation, as_column


@dataclass(slots=True)
class UnitScope:
    """What names mean inside a SELECT grouped by the unit: its keys and aggregates, columns of the grouped table."""

    rows: RowScope
    alias: str
    limit: int  # rows of one unit that sums are clamped for
    clamps: bool = False  # a count or a sum was asked for
    keys: dict[str, Value] = field(default_factory=dict)
    key_kinds: set[type[exp.Expression]] = field(default_factory=set)
    outputs: list[exp.Expression] = field(default_factory=list)
    made: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, exp.Expression] = field(default_factory=dict)
    meant: dict[str, Value] = field(default_factory=dict)  # what aliases stand for

    def column(self, node: exp.Column) -> Value:
        label = node.name.lower()
        if not node.table and label in self.aliases and self.rows.find(node) is None:
            return self._alias(label).fresh()
        remedy = "put it into GROUP BY, or aggregate it"
        raise refused(
            f"column {node.name[:60]} is neither grouped nor aggregated", node, construct="column", remedy=remedy
        )

    def _alias(self, label: str) -> Value:
        """Compiled once: aliases of aliases would double the work each time."""
        if label not in self.meant:
            node = self.aliases.pop(label)  # not visible inside itself
            try:
                self.meant[label] = Compiler(self).value(node)
            finally:
                self.aliases[label] = node
        return self.meant[label]

    def semi_join(self, node: exp.Expression) -> Value:
        raise refused(
            "a subquery can not stand here", node, construct="subquery", remedy="filter in WHERE before grouping"
        )

    def special(self, node: exp.Expression) -> Value | None:
        if is_aggregate(node):
            return self._aggregate(node)
        if type(node) in self.key_kinds and (not isinstance(node, exp.Column) or self.rows.find(node) is not None):
            known = self.keys.get(canonical_text(Compiler(self.rows).value(node).tree))
            return None if known is None else known.fresh()
        return None

    def _column(self, tree: exp.Expression, value: Value) -> Value:
        """Adds a column to the grouped table, once per distinct tree."""
        key = canonical_text(tree)
        if key not in self.made:
            label = f"c{len(self.outputs)}"
            self.outputs.append(aliased(tree, label))
            self.made[key] = replace(value, tree=name(label, self.alias))
        return self.made[key].fresh()

    def _aggregate(self, node: exp.Expression) -> Value:
        call = asked(node)
        compiler = Compiler(self.rows)
        condition = compiler.boolean(call.condition) if call.condition is not None else None
        value = compiler.value(call.argument) if call.argument is not None else None
        if call.function in (COUNT, COUNT_DISTINCT):
            return self._count(value, condition, distinct=call.function is COUNT_DISTINCT)
        assert value is not None
        if call.function in (MIN, MAX):
            return self._extreme(call.function, value, condition)
        if call.function in (SUM, AVG) and value.numeric:
            return self._total(call.function, value, condition, node)
        raise refused(
            f"{call.function.name.upper()} per unit is not answered",
            node,
            construct=call.function.name.upper(),
            remedy="inside a query grouped by the unit use COUNT, SUM, AVG, MIN or MAX",
        )

    def _count(self, value: Value | None, condition: Value | None, *, distinct: bool) -> Value:
        self.clamps = True
        argument: exp.Expression = (
            number(1) if value is None or (value.constant and not distinct) else canonical_key(value)
        )
        if condition is not None:
            argument = when((condition.tree, argument))
        inner = exp.Distinct(expressions=[argument]) if distinct else argument
        parents = [part for part in (value, condition) if part is not None]
        found = derived(exp.Null(), BIGINT, *parents)
        found = replace(found, reads_unit=False, lacking=frozenset(), auto=False)
        high = Fraction(self.limit)
        counted = self._column(exp.Count(this=inner, big_int=True), replace(found, range=(Fraction(0), high)))
        return replace(counted, code=_as_code(counted.tree.copy(), Fraction(1), 0, self.limit))

    def _extreme(self, function: AggregateSpec, value: Value, condition: Value | None) -> Value:
        kind = exp.Min if function is MIN else exp.Max
        trees = [canonical_key(value)] + ([value.code.tree] if value.code is not None else [])
        if condition is not None:
            trees = [when((condition.tree.copy(), tree)) for tree in trees]
        found = self._column(kind(this=trees[0]), replace(value, tokens=frozenset(), constant=None, code=None))
        if value.code is None:
            return found
        coded = self._column(kind(this=trees[1]), replace(value, code=None))
        return replace(found, code=replace(value.code, tree=coded.tree), source=None)

    def _total(self, function: AggregateSpec, value: Value, condition: Value | None, node: exp.Expression) -> Value:
        """SUM over codes is exact; AVG divides it by the count of the same rows."""
        code = ranges.measure_code(value, ranges.SUM_BITS)
        if code is None:
            raise missing_bounds(value.lacking, node, construct=sql_as_written(node))
        tree = code.tree if condition is None else when((condition.tree, code.tree))
        parents = [part for part in (value, condition) if part is not None]
        empty = replace(derived(exp.Null(), DOUBLE, *parents), reads_unit=value.reads_unit, lacking=frozenset())
        total = self._column(exp.Sum(this=cast_to(tree.copy(), "BIGINT")), empty)
        if function is SUM:
            return self._sum(total, value, code)
        count = self._column(exp.Count(this=tree, big_int=True), empty)
        mean = binary(
            exp.Div,
            cast_to(total.tree, "DOUBLE"),
            exp.Nullif(this=cast_to(count.tree, "DOUBLE"), expression=cast_to(number(0), "DOUBLE")),
        )
        known = (code.low * code.step, code.high * code.step)
        return replace(empty, tree=_scaled(mean, code.step), range=known)

    def _sum(self, total: Value, value: Value, code: Code) -> Value:
        self.clamps = True
        low, high = min(0, code.low * self.limit), max(0, code.high * self.limit)
        kind = BIGINT if value.type == BIGINT else DOUBLE
        raw: exp.Expression = _scaled(cast_to(total.tree.copy(), "DOUBLE"), code.step)
        if kind == BIGINT:
            raw = cast_to(raw, "BIGINT", safe=True)
        known = (low * code.step, high * code.step)
        if max(abs(low), abs(high)) >= ranges.WIDEST:
            return replace(total, tree=raw, type=kind, range=known)
        return replace(total, tree=raw, type=kind, code=_as_code(total.tree, code.step, low, high), range=known)


def _as_code(total: exp.Expression, step: Fraction, low: int, high: int) -> Code:
    """A per-unit total as a code: clamped, because one unit may have any number of rows."""
    tests: list[tuple[exp.Expression, exp.Expression]] = [
        (exp.LT(this=total.copy(), expression=number(low)), number(low)),
        (exp.GT(this=total.copy(), expression=number(high)), number(high)),
    ]
    return Code(cast_to(when(*tests, otherwise=total), "BIGINT"), step, low, high)


def _scaled(tree: exp.Expression, step: Fraction) -> exp.Expression:
    """code * step in DOUBLE, by one correctly rounded division where the step is 1/n."""
    if step == 1:
        return tree
    if step.numerator == 1 and step.denominator < 1 << 53:
        return binary(exp.Div, tree, double_literal(float(step.denominator)))
    return binary(exp.Mul, tree, double_literal(float(step)))


def per_unit(
    relation: Relation, scope: RowScope, form: SelectParts, groups: list[tuple[exp.Expression, Value]], context: Context
) -> Rows:
    """The rows of a SELECT grouped by the unit: a derived table, and its outputs as expressions over it."""
    assert relation.unit is not None
    grouped = UnitScope(scope, context.alias(), _row_limit(relation, context), aliases=dict(form.aliases))
    unit = name(UNIT_COLUMN, grouped.alias)
    outputs: list[exp.Expression] = [aliased(relation.unit.copy(), UNIT_COLUMN)]
    by: list[exp.Expression] = [relation.unit.copy()]
    for position, (node, value) in enumerate(groups):
        grouped.key_kinds.add(type(node))
        if value.constant is not None:  # a number in GROUP BY would be read as a position
            grouped.keys[canonical_text(value.tree)] = value
            continue
        label = f"g{position}"
        tree = canonical_key(value)
        outputs.append(aliased(tree, label))
        by.append(tree.copy())
        if value.code is not None:  # keys that are also measured keep their codes: they are a function of the key
            outputs.append(aliased(exp.Min(this=value.code.tree.copy()), f"{label}#"))
        grouped.keys[canonical_text(value.tree)] = as_column(value, label, grouped.alias)
    compiler = Compiler(grouped)
    fields = {label.lower(): compiler.value(node) for label, node in zip(form.names, form.nodes, strict=True)}
    having = tuple(compiler.boolean(part).tree for part in conjuncts(form.having))
    alone = all(UNIT in value.tokens or value.constant is not None for _, value in groups)
    proven = relation.bound is not None and not relation.bound.tables and relation.bound.constant <= grouped.limit
    clamped = grouped.clamps and not proven
    if clamped:
        context.notes.append(
            f"Counts and sums per {context.schema.unit} are clamped to what {grouped.limit} rows come to; bounds for"
            " their names, rows_per_unit, or an admin's max_rows_per_unit move that."
        )
    return _grouped(relation, grouped, _Parts(unit, outputs, by, fields, alone, having, clamped))


@dataclass(frozen=True, slots=True)
class _Parts:
    unit: exp.Column
    outputs: list[exp.Expression]
    by: list[exp.Expression]
    fields: dict[str, Value]
    alone: bool
    having: tuple[exp.Expression, ...]
    clamped: bool


def _grouped(relation: Relation, scope: UnitScope, parts: _Parts) -> Rows:
    select = relation.select(parts.outputs + scope.outputs)
    select.set("group", exp.Group(expressions=parts.by))
    made = Relation(
        subquery(select, scope.alias),
        frozenset({scope.alias}),
        parts.unit,
        RowBound(1, ()) if parts.alone else relation.bound,
        one_row=parts.alone,
        bare=False,
        expected=None,
        where=parts.having,
        crossed=0 if parts.alone else relation.crossed,
        reach=Reach(None, constant=1) if parts.alone else relation.reach,
        clamped_totals=parts.clamped or relation.clamped_totals,
    )
    return Rows(made, parts.fields)


def _row_limit(relation: Relation, context: Context) -> int:
    """How many rows of one unit per-unit totals are clamped for: what admins promise, or the rows that may count."""
    tables = [context.schema.tables[label] for label in relation.bound.tables] if relation.bound is not None else []
    caps = [found.max_rows_per_unit for found in tables]
    if tables and all(cap is not None for cap in caps):
        return max(1, sum(cap for cap in caps if cap is not None))
    return context.ask.bounds.rows_per_unit or context.schema.defaults.rows_per_unit or ROWS_PER_UNIT
