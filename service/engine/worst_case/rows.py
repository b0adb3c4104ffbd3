"""How many rows Plan.rows has at worst, and what reading them once costs.

The tree is the binder's, so its shapes are few: scans, joins on equalities or on nothing, derived tables, UNION ALL,
GROUP BY the unit, EXISTS and IN. Whatever else stands there raises NotBounded. A condition passes every row; what
it costs is counted, and an equality among columns of two sources limits how many rows meet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sqlglot import exp

from service.core.plan import Plan, RowBound
from service.core.prepared import UNIT_COLUMN
from service.core.schema import Table
from service.core.sizes import PrivateSize, Size
from service.engine.worst_case.expressions import conditions_of, described, evaluated, subqueries
from service.engine.worst_case.links import aliases_read, all_on_unit, links_of, read_from_outside
from service.engine.worst_case.loads import Load, grouped, hash_joined, load
from service.engine.worst_case.shapes import (
    ColumnFacts,
    NotBounded,
    RowShape,
    in_best_order,
    inner_join,
    left_joined,
    scanned,
)
from service.engine.worst_case.trees import columns_read, nodes

SELECT_PARTS = {"expressions", "from_", "joins", "where", "group"}
JOIN_PARTS = {"this", "on", "kind", "side"}

Read = set[tuple[str, str]]  # (source, column)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Rows, and the load of computing them once. `nodes` counts the expressions planned for them. `widest`: the
    most rows that a subquery in a condition meets on the way, where those are more."""

    shape: RowShape
    load: Load
    nodes: int
    widest: RowShape | None = None


def bounded_rows(plan: Plan, sizes: Mapping[str, Size]) -> Bounded:
    """Plan.rows at worst. Its row bound (invariant P1) may know more than the tree shows."""
    walk = _Walk(sizes, plan.tables)
    found = walk.select(plan.rows)
    rows, most = _by_row_bound(plan.row_bound, sizes, found.shape)
    widest = max(walk.met, key=lambda shape: shape.rows, default=found.shape)
    return replace(found, shape=found.shape.within(rows=rows, most=most), widest=widest)


def _by_row_bound(bound: RowBound | None, sizes: Mapping[str, Size], shape: RowShape) -> tuple[int, int]:
    if bound is None or shape.units is None:
        return shape.rows, shape.most
    rows, most = bound.constant * shape.units, bound.constant
    for name in bound.tables:
        size = sizes.get(name)
        if not isinstance(size, PrivateSize):
            return shape.rows, shape.most
        rows, most = rows + size.rows, most + size.most
    return rows, most


@dataclass(frozen=True, slots=True)
class _Walk:
    sizes: Mapping[str, Size]
    tables: Mapping[str, Table]
    met: list[RowShape] = field(default_factory=list)  # rows of subqueries, each with those around it

    def select(self, tree: exp.Expression) -> Bounded:
        """The rows of a query, its columns under the names that it gives them."""
        if isinstance(tree, exp.Subquery):
            return self.select(tree.this)
        if isinstance(tree, exp.Union):
            return self._union(tree)
        _known(tree, exp.Select, SELECT_PARTS)
        found = self._from(tree, None)
        outputs = _outputs(tree)
        work = found.load
        for output in outputs.values():
            work = work + evaluated(output, found.shape.rows, found.shape) + self._subqueries(output, found.shape)
        counted = found.nodes + sum(_size(output) for output in outputs.values())
        group = tree.args.get("group")
        if group is None:
            columns = {("", name): described(output, found.shape) for name, output in outputs.items()}
            return Bounded(replace(found.shape, columns=columns), work, counted)
        return self._grouped(group, outputs, replace(found, load=work, nodes=counted))

    # --- FROM and WHERE ----------------------------------------------------------------------------

    def _from(self, tree: exp.Expression, outer: RowShape | None) -> Bounded:
        """All sources joined, with the conditions counted. `outer`: rows around an EXISTS, which it may read."""
        if tree.args.get("from_") is None:
            raise NotBounded
        first, joins = tree.args["from_"].this, tree.args.get("joins") or []
        inner, lefts, conditions = [first], [], _conditions(tree)
        for join in joins:
            _known(join, exp.Join, JOIN_PARTS)
            side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
            if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS"):
                raise NotBounded
            if side == "LEFT":
                lefts.append(join)
            else:
                inner.append(join.this)
                conditions += conditions_of(join.args.get("on"))
        read = columns_read(tree)
        parts = [self._source(source, read) for source in inner]
        links = links_of(conditions)
        steps = in_best_order(
            [part.shape for part in parts], links, on_unit=all_on_unit([part.shape for part in parts], links)
        )
        work, counted = parts[0].load, sum(part.nodes for part in parts)
        for part in parts[1:]:
            work = work + part.load
        for before, after in pairwise(steps):
            work = work + _join_load(before, after, [part.shape for part in parts], read)
        made = Bounded(steps[-1], work, counted)
        for join in lefts:
            made = self._left(made, join, read)
        return self._filtered(made, conditions, [part.shape for part in parts], outer)

    def _source(self, source: exp.Expression, read: Read) -> Bounded:
        if isinstance(source, exp.Subquery):
            found = self.select(source.this)
            return replace(found, shape=found.shape.named(source.alias_or_name))
        if not isinstance(source, exp.Table) or source.name not in self.sizes:
            raise NotBounded
        alias = source.alias_or_name
        wanted = {name for one, name in read if one == alias}
        shape = scanned(source.name, self.sizes[source.name], self.tables.get(source.name), wanted).named(alias)
        texts = sum(facts.width for facts in shape.columns.values() if facts.width > 16)
        return Bounded(shape, load(read=shape.rows * max(1, len(wanted)), copy=shape.rows * texts), 0)

    def _left(self, made: Bounded, join: exp.Join, read: Read) -> Bounded:
        part = self._source(join.this, read)
        conditions = conditions_of(join.args.get("on"))
        links = links_of(conditions)
        on_unit = any(link.of_units for link in links)
        shape = left_joined(made.shape, part.shape, links, on_unit=on_unit)
        width = _row_width(part.shape, read)
        pairs = inner_join(made.shape, part.shape, links, on_unit=on_unit)
        work = made.load + part.load + hash_joined(made.shape.rows, part.shape.rows, shape.rows, width=width)
        done = Bounded(shape, work, made.nodes + part.nodes)
        return self._filtered(done, conditions, [], None, rows=pairs.rows)

    def _filtered(
        self,
        made: Bounded,
        conditions: list[exp.Expression],
        sources: list[RowShape],
        outer: RowShape | None,
        rows: int | None = None,
    ) -> Bounded:
        """The same rows, with what testing the conditions costs: one that reads a single source is tested on that
        source's rows, one that reads the rows around it on all pairs with those, every other on the joined ones."""
        work, shape = made.load, made.shape
        around = shape if outer is None else _with_outer(outer, shape, conditions)
        for condition in conditions:
            read = aliases_read(condition)
            alone = next((source for source in sources if read <= source.aliases), None)
            tested = shape.rows if rows is None else rows
            if subqueries(condition) or not read <= shape.aliases:
                tested = max(tested, around.rows)
            elif alone is not None:
                tested = alone.rows
            work = work + evaluated(condition, tested, around) + self._subqueries(condition, around)
        return replace(made, load=work, nodes=made.nodes + sum(_size(condition) for condition in conditions))

    # --- Subqueries in conditions ------------------------------------------------------------------

    def _subqueries(self, tree: exp.Expression, outer: RowShape) -> Load:
        work = Load()
        for found in subqueries(tree):
            if isinstance(found, exp.Exists):
                work = work + self._exists(found, outer)
            elif isinstance(found.parent, exp.In) and isinstance(found, exp.Subquery):
                part = self.select(found.this)
                work = work + part.load + hash_joined(outer.rows, part.shape.rows, outer.rows, width=16)
            else:
                raise NotBounded
        return work

    def _exists(self, node: exp.Exists, outer: RowShape) -> Load:
        """The engine joins the different outer values with the inner rows before it keeps one of each."""
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        _known(inner, exp.Select, {"expressions", "from_", "joins", "where"})
        part = self._from(inner, outer)
        pairs = _with_outer(outer, part.shape, _conditions(inner))
        self.met.append(pairs)
        width = 8 * max(1, len(read_from_outside(inner, part.shape))) + 16
        work = part.load + hash_joined(outer.rows, part.shape.rows, pairs.rows + outer.rows, width=width)
        return work + grouped(outer.rows, outer.rows, aggregates=0, width=width)

    # --- UNION ALL and GROUP BY --------------------------------------------------------------------

    def _union(self, tree: exp.Union) -> Bounded:
        _known(tree, exp.Union, {"this", "expression", "distinct"})
        if tree.args.get("distinct"):
            raise NotBounded
        left, right = self.select(tree.this), self.select(tree.expression)
        a, b = left.shape, right.shape
        if a.private != b.private or len(a.columns) != len(b.columns):
            raise NotBounded
        columns = {
            name: _either(one, other) for (name, one), other in zip(a.columns.items(), b.columns.values(), strict=True)
        }
        units = None if a.units is None or b.units is None else a.units + b.units
        most, rows = a.most + b.most, a.rows + b.rows
        larger = max(a, b, key=lambda side: side.rows)
        # Σ (a + b)² <= 2·(Σ a² + Σ b²)
        squares = min(2 * (a.squares + b.squares), rows * most)
        shape = RowShape(rows, units, most, squares, columns, larger.of, larger.factors)
        return Bounded(shape, left.load + right.load, left.nodes + right.nodes)

    def _grouped(self, group: exp.Expression, outputs: Mapping[str, exp.Expression], made: Bounded) -> Bounded:
        """One row per unit and key. Keys that are functions of the unit add nothing."""
        _known(group, exp.Group, {"expressions"})
        shape, per_unit = made.shape, 1
        width = sum(described(output, made.shape).text for output in outputs.values())
        if not any(_is_unit(key) for key in group.expressions) or shape.units is None:
            raise NotBounded
        for key in group.expressions:
            facts = described(key, shape)
            width += facts.width
            if not (_is_unit(key) or facts.of_unit):
                per_unit *= facts.distinct(shape.rows)
        most = min(shape.most, per_unit)
        rows = min(shape.rows, shape.units * most)
        work = made.load + grouped(shape.rows, rows, aggregates=len(outputs), width=width)
        for output in outputs.values():
            for _ in output.find_all(exp.Distinct):
                work = work + grouped(
                    shape.rows, shape.rows, aggregates=0, width=width + described(output, shape).width
                )
        columns = {("", name): _of_group(output, shape, rows, most) for name, output in outputs.items()}
        squares = min(shape.squares, rows * most)
        done = replace(shape, rows=rows, most=most, squares=squares, columns=columns)
        return Bounded(done if rows == shape.rows else replace(done, factors=()), work, made.nodes)


def _with_outer(outer: RowShape, inner: RowShape, conditions: list[exp.Expression]) -> RowShape:
    """Rows of a subquery, each with the rows around it that it may meet: only equalities limit those."""
    links = links_of(conditions)
    on_unit = any(link.of_units and link.onto(outer, inner) is not None for link in links)
    return inner_join(outer, inner, links, on_unit=on_unit)


def _of_group(output: exp.Expression, shape: RowShape, rows: int, most: int) -> ColumnFacts:
    facts = described(output, shape)
    if _is_unit(output):
        return replace(facts, sharing=most)
    return replace(facts, sharing=min(rows, facts.sharing) if isinstance(output, exp.Column) else rows)


def _either(one: ColumnFacts, other: ColumnFacts) -> ColumnFacts:
    """Two functions of the unit are two values of one unit, so neither is one any more."""
    values = None if one.values is None or other.values is None else one.values + other.values
    width, text = max(one.width, other.width), max(one.text, other.text)
    return ColumnFacts(one.sharing + other.sharing, values, width=width, text=text)


def _known(node: exp.Expression, kind: type[exp.Expression], parts: set[str]) -> None:
    """Nothing but the parts that this room reads."""
    if type(node) is not kind or {name for name, value in node.args.items() if value} - parts:
        raise NotBounded


def _outputs(select: exp.Expression) -> dict[str, exp.Expression]:
    return {part.alias_or_name: part.unalias() for part in select.expressions}


def _conditions(select: exp.Expression) -> list[exp.Expression]:
    where = select.args.get("where")
    return conditions_of(where.this) if where is not None else []


def _join_load(before: RowShape, after: RowShape, sources: list[RowShape], read: Read) -> Load:
    new = next(source for source in sources if source.aliases <= after.aliases - before.aliases)
    width = max(_row_width(new, read), _row_width(before, read))  # whichever side the engine takes for the smaller
    return hash_joined(before.rows, new.rows, after.rows, width=width)


def _row_width(shape: RowShape, read: Read) -> int:
    """Bytes of what a query reads of one row."""
    return 8 + sum(facts.width for name, facts in shape.columns.items() if name in read)


def _is_unit(tree: exp.Expression) -> bool:
    return isinstance(tree, exp.Column) and tree.name == UNIT_COLUMN


def _size(tree: exp.Expression) -> int:
    return len(nodes(tree))
