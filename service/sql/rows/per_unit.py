"""Rows per unit: grouping inside the core, UNION ALL, semi-joins.

in   SELECT uid, SUM(x) AS total, COUNT(*) … GROUP BY uid [, …] HAVING …
out  a derived table with the hidden unit, one row per unit (or per unit and key)

Why only these aggregates: a per-unit result must be a function of that unit's rows as a multiset. Integer
sums over codes, counts, minimum and maximum are; float sums, FIRST, LIST are not (they depend on row order,
hence on who else is there).
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from service.core.plan import RowBound
from service.core.schema import BIGINT, DOUBLE, UNIT_COLUMN
from service.sql.cores.measures import canonical, shown
from service.sql.expr import ranges
from service.sql.expr.comparisons import unified
from service.sql.expr.conditions import Compiler, joined_domain
from service.sql.expr.trees import aliased, binary, cast, conjuncts, name, number, subquery, text, when
from service.sql.expr.values import UNIT, Code, Value, derived, double_literal
from service.sql.read.aggregates import asked, is_aggregate
from service.sql.read.select import Shape
from service.sql.refusals import missing_bounds, refused
from service.sql.rows.bind import Rows, RowScope
from service.sql.rows.relations import Context, Relation, column_of


@dataclass(slots=True)
class UnitScope:
    """Inside a grouped SELECT: keys and aggregates are columns of the grouped table, nothing else is visible."""

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
            known = self.keys.get(text(Compiler(self.rows).value(node).tree))
            return None if known is None else known.fresh()
        return None

    def _column(self, tree: exp.Expression, value: Value) -> Value:
        """Adds a column to the grouped table, once per distinct tree."""
        key = text(tree)
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
        if call.function in ("count", "count_distinct"):
            return self._count(value, condition, distinct=call.function == "count_distinct")
        assert value is not None
        if call.function in ("min", "max"):
            return self._extreme(call.function, value, condition)
        if call.function in ("sum", "avg") and value.numeric:
            return self._total(call.function, value, condition, node)
        raise refused(
            f"{call.function.upper()} per unit is not answered",
            node,
            construct=call.function.upper(),
            remedy="inside a query grouped by the unit use COUNT, SUM, AVG, MIN or MAX",
        )

    def _count(self, value: Value | None, condition: Value | None, *, distinct: bool) -> Value:
        self.clamps = True
        argument: exp.Expression = number(1) if value is None or (value.constant and not distinct) else canonical(value)
        if condition is not None:
            argument = when((condition.tree, argument))
        inner = exp.Distinct(expressions=[argument]) if distinct else argument
        parents = [part for part in (value, condition) if part is not None]
        found = derived(exp.Null(), BIGINT, *parents)
        found = replace(found, reads_unit=False, lacking=frozenset(), auto=False)
        high = Fraction(self.limit)
        counted = self._column(exp.Count(this=inner, big_int=True), replace(found, range=(Fraction(0), high)))
        return replace(counted, code=_as_code(counted.tree.copy(), Fraction(1), 0, self.limit))

    def _extreme(self, function: str, value: Value, condition: Value | None) -> Value:
        kind = exp.Min if function == "min" else exp.Max
        trees = [canonical(value)] + ([value.code.tree] if value.code is not None else [])
        if condition is not None:
            trees = [when((condition.tree.copy(), tree)) for tree in trees]
        found = self._column(kind(this=trees[0]), replace(value, tokens=frozenset(), constant=None, code=None))
        if value.code is None:
            return found
        coded = self._column(kind(this=trees[1]), replace(value, code=None))
        return replace(found, code=replace(value.code, tree=coded.tree), source=None)

    def _total(self, function: str, value: Value, condition: Value | None, node: exp.Expression) -> Value:
        """SUM over codes is exact; AVG divides it by the count of the same rows."""
        code = ranges.measure_code(value, ranges.SUM_BITS)
        if code is None:
            raise missing_bounds(value.lacking, node, construct=shown(node))
        tree = code.tree if condition is None else when((condition.tree, code.tree))
        parents = [part for part in (value, condition) if part is not None]
        empty = replace(derived(exp.Null(), DOUBLE, *parents), reads_unit=value.reads_unit, lacking=frozenset())
        total = self._column(exp.Sum(this=cast(tree.copy(), "BIGINT")), empty)
        if function == "sum":
            return self._sum(total, value, code)
        count = self._column(exp.Count(this=tree, big_int=True), empty)
        mean = binary(
            exp.Div,
            cast(total.tree, "DOUBLE"),
            exp.Nullif(this=cast(count.tree, "DOUBLE"), expression=cast(number(0), "DOUBLE")),
        )
        known = (code.low * code.step, code.high * code.step)
        return replace(empty, tree=_scaled(mean, code.step), range=known)

    def _sum(self, total: Value, value: Value, code: Code) -> Value:
        self.clamps = True
        low, high = min(0, code.low * self.limit), max(0, code.high * self.limit)
        kind = BIGINT if value.type == BIGINT else DOUBLE
        raw: exp.Expression = _scaled(cast(total.tree.copy(), "DOUBLE"), code.step)
        if kind == BIGINT:
            raw = cast(raw, "BIGINT", safe=True)
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
    return Code(cast(when(*tests, otherwise=total), "BIGINT"), step, low, high)


def _scaled(tree: exp.Expression, step: Fraction) -> exp.Expression:
    """code * step in DOUBLE, by one correctly rounded division where the step is 1/n."""
    if step == 1:
        return tree
    if step.numerator == 1 and step.denominator < 1 << 53:
        return binary(exp.Div, tree, double_literal(float(step.denominator)))
    return binary(exp.Mul, tree, double_literal(float(step)))


def per_unit(
    relation: Relation, scope: RowScope, shape: Shape, groups: list[tuple[exp.Expression, Value]], context: Context
) -> Rows:
    """A SELECT grouped by the unit: a derived table, then its outputs as expressions over it."""
    assert relation.unit is not None
    grouped = UnitScope(scope, context.alias(), _row_limit(relation, context), aliases=dict(shape.aliases))
    unit = name(UNIT_COLUMN, grouped.alias)
    outputs: list[exp.Expression] = [aliased(relation.unit.copy(), UNIT_COLUMN)]
    by: list[exp.Expression] = [relation.unit.copy()]
    for position, (node, value) in enumerate(groups):
        grouped.key_kinds.add(type(node))
        if value.constant is not None:  # a number in GROUP BY would be read as a position
            grouped.keys[text(value.tree)] = value
            continue
        label = f"g{position}"
        tree = canonical(value)
        outputs.append(aliased(tree, label))
        by.append(tree.copy())
        if value.code is not None:  # keys that are also measured keep their codes: they are a function of the key
            outputs.append(aliased(exp.Min(this=value.code.tree.copy()), f"{label}#"))
        grouped.keys[text(value.tree)] = column_of(value, label, grouped.alias)
    compiler = Compiler(grouped)
    fields = {label.lower(): compiler.value(node) for label, node in zip(shape.names, shape.nodes, strict=True)}
    having = tuple(compiler.boolean(part).tree for part in conjuncts(shape.having))
    alone = all(UNIT in value.tokens or value.constant is not None for _, value in groups)
    proven = relation.bound is not None and not relation.bound.tables and relation.bound.constant <= grouped.limit
    if grouped.clamps and not proven:
        context.notes.append(
            f"Counts and sums per {context.schema.unit} are clamped to what {grouped.limit} rows come to; bounds for"
            " their names, rows_per_unit, or an admin's max_rows_per_unit move that."
        )
    return _grouped(relation, grouped, _Parts(unit, outputs, by, fields, alone, having))


@dataclass(frozen=True, slots=True)
class _Parts:
    unit: exp.Column
    outputs: list[exp.Expression]
    by: list[exp.Expression]
    fields: dict[str, Value]
    alone: bool
    having: tuple[exp.Expression, ...]


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
    )
    return Rows(made, parts.fields)


def _row_limit(relation: Relation, context: Context) -> int:
    """How many rows of one unit per-unit totals are clamped for: what admins promise, or the rows that may count."""
    tables = [context.schema.tables[label] for label in relation.bound.tables] if relation.bound is not None else []
    caps = [found.max_rows_per_unit for found in tables]
    if tables and all(cap is not None for cap in caps):
        return max(1, sum(cap for cap in caps if cap is not None))
    return context.ask.bounds.rows_per_unit or context.schema.defaults.rows_per_unit


def union_all(left: Rows, right: Rows, node: exp.Expression, context: Context) -> Rows:
    """Rows of both; a unit's bounds add up."""
    if len(left.fields) != len(right.fields):
        raise refused(
            "the two sides have different numbers of columns",
            node,
            construct="UNION ALL",
            remedy="select the same columns",
        )
    if left.relation.private != right.relation.private:
        raise refused(
            "private and public rows can not be mixed", node, construct="UNION ALL", remedy="union private rows only"
        )
    alias = context.alias()
    selects, fields = [], {}
    pairs = [_common(a, b, node) for a, b in zip(left.fields.values(), right.fields.values(), strict=True)]
    for side, rows in enumerate((left, right)):
        outputs: list[exp.Expression] = []
        if rows.relation.unit is not None:
            outputs.append(aliased(rows.relation.unit.copy(), UNIT_COLUMN))
        for position, pair in enumerate(pairs):
            outputs.append(aliased(pair[side].tree.copy(), f"c{position}"))
            code = pair[side].code
            if code is not None:
                outputs.append(aliased(cast(code.tree.copy(), "BIGINT"), f"c{position}#"))
        selects.append(rows.relation.select(outputs))
    for position, (label, pair) in enumerate(zip(left.fields, pairs, strict=True)):
        fields[label] = column_of(_merged(*pair), f"c{position}", alias)
    union = exp.Union(this=selects[0], expression=selects[1], distinct=False)
    bounds = left.relation.bound, right.relation.bound
    bound = None
    if bounds[0] is not None and bounds[1] is not None:
        bound = RowBound(bounds[0].constant + bounds[1].constant, bounds[0].tables + bounds[1].tables)
    unit = name(UNIT_COLUMN, alias) if left.relation.private else None
    counts = left.relation.expected, right.relation.expected
    expected = None if None in counts else sum(count for count in counts if count is not None)
    made = Relation(subquery(union, alias), frozenset({alias}), unit, bound, bare=True, expected=expected)
    return Rows(replace(made, crossed=max(left.relation.crossed, right.relation.crossed)), fields)


def _common(a: Value, b: Value, node: exp.Expression) -> tuple[Value, Value]:
    (a, b), kind = unified([a, b], node) if a.type != b.type else ([a, b], a.type)
    codes = ranges.align([a.code, b.code]) if a.code is not None and b.code is not None else None
    a, b = (replace(side, type=kind, code=None if codes is None else codes[i]) for i, side in enumerate((a, b)))
    return a, b


def _merged(a: Value, b: Value) -> Value:
    found = derived(a.tree, a.type, a, b)
    code = None
    if a.code is not None and b.code is not None:
        code = replace(a.code, low=min(a.code.low, b.code.low), high=max(a.code.high, b.code.high))
    domain = None
    if a.domain is not None and b.domain is not None and a.constant is None and b.constant is None:
        domain = tuple(dict.fromkeys(a.domain + b.domain))
    elif a.domain is not None and b.domain is not None:
        domain = joined_domain([a, b])
    return replace(found, code=code, range=ranges.hull([a.range, b.range]), domain=domain, tokens=a.tokens & b.tokens)
