"""The outer SQL of the SELECT that holds a core: outputs, HAVING, ORDER BY … over its released keys and aggregates."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.prepared import POSITION
from service.sql.cores.build_plan import Core, column_type
from service.sql.cores.measures import Call
from service.sql.expr.canonical import canonical_text
from service.sql.expr.compiler import Compiler
from service.sql.expr.trees import aliased, name, table
from service.sql.outer.translate import Translator
from service.sql.read.select import SelectParts, position
from service.sql.refusals import refused
from service.sql.rows.bind import RowScope
from service.sql.rows.kinds import OuterColumn, Released, Used

Resolved = tuple[exp.Expression, OuterColumn]
Nested = Callable[[exp.Expression], Released]


@dataclass(slots=True)
class ReleasedScope:
    """Where a released SELECT reads from, and how its names resolve. `nested` turns a subquery into released SQL."""

    resolve: Callable[[exp.Expression], Resolved | None]
    nested: Nested
    source: exp.From
    core: int | None
    position: exp.Column | None
    joins: list[exp.Join] = field(default_factory=list)
    where: exp.Expression | None = None
    group: list[exp.Expression] = field(default_factory=list)
    aggregates: bool = False
    tables: set[str] = field(default_factory=set)
    uses: Used = ()

    def subquery(self, node: exp.Expression) -> tuple[exp.Expression, Used]:
        result = self.nested(node)
        self.tables |= result.tables
        return result.tree(), tuple(dict.fromkeys(use for made in result.columns.values() for use in made.uses))


@dataclass(frozen=True, slots=True)
class CoreView:
    """A core as its own SELECT sees it: which aggregate nodes became which calls, and its row scope."""

    index: int
    core: Core
    placed: Mapping[int, Call]
    scope: RowScope


def core_select(select: exp.Select, form: SelectParts, view: CoreView, nested: Nested) -> Released:
    """The SELECT around a core, over the core's released table."""
    label = f"core_{view.index}"
    kinds = {type(node) for node in form.groups} | ({type(node) for node in form.nodes} if form.distinct else set())

    def resolve(node: exp.Expression) -> Resolved | None:
        if id(node) in view.placed:
            return _released(view, view.core.calls[view.placed[id(node)]])
        if type(node) not in kinds or (isinstance(node, exp.Column) and view.scope.find(node) is None):
            return None
        try:
            key = view.core.keys.get(canonical_text(Compiler(view.scope).value(node).tree))
        except ConstructRefused:
            return None
        return None if key is None else _released(view, key)

    return finish(
        select,
        form,
        ReleasedScope(resolve, nested, exp.From(this=table(label, label)), view.index, name(POSITION, label)),
    )


def _released(view: CoreView, column: str) -> Resolved:
    item = column_type(view.core.plan, column)
    uses: Used = ((view.index, column),) if column.startswith("a") else ()
    return name(column, f"core_{view.index}"), OuterColumn(item.type, (view.index, column), uses, name(column))


class _Outputs:
    """Translates the expressions of one SELECT; output aliases are visible, though not inside themselves."""

    def __init__(self, form: SelectParts, frame: ReleasedScope) -> None:
        self.form, self.frame = form, frame
        self.busy: set[str] = set()
        self.known: dict[str, Resolved] = {}  # translated once: aliases of aliases would double the work each time

    def resolve(self, node: exp.Expression) -> Resolved | None:
        known = self.frame.resolve(node)
        if known is not None or not isinstance(node, exp.Column) or node.table:
            return known
        label = node.name.lower()
        if label not in self.form.aliases or label in self.busy:
            return None
        if label not in self.known:
            self.busy.add(label)
            try:
                self.known[label] = self.output(self.form.aliases[label])
            finally:
                self.busy.discard(label)
        tree, made = self.known[label]
        return tree.copy(), made

    def output(self, node: exp.Expression) -> Resolved:
        return Translator(self.resolve, self.frame.subquery, self.frame.aggregates).output(node)

    def tree(self, node: exp.Expression) -> exp.Expression:
        return self.output(node)[0]


def finish(select: exp.Select, form: SelectParts, frame: ReleasedScope) -> Released:
    """A released SELECT: outputs, conditions, order and limit, all through one translator."""
    outputs = _Outputs(form, frame)
    trees: list[exp.Expression] = []
    columns: dict[str, OuterColumn] = {}
    for label, node in zip(form.names, form.nodes, strict=True):
        tree, made = outputs.output(node)
        if frame.uses:
            made = replace(made, uses=tuple(dict.fromkeys((*made.uses, *frame.uses))), direct=None, expression=None)
        trees.append(aliased(tree, label))
        columns[label] = made
    chosen = exp.Select(expressions=trees, from_=frame.source)
    if frame.joins:
        chosen.set("joins", frame.joins)
    where = frame.where
    if form.having is not None and not frame.aggregates:
        where = outputs.tree(form.having)  # HAVING of a core: its groups are rows by now
    if where is not None:
        chosen.set("where", exp.Where(this=where))
    if frame.group:
        chosen.set("group", exp.Group(expressions=frame.group))
    if form.having is not None and frame.aggregates:
        chosen.set("having", exp.Having(this=outputs.tree(form.having)))
    _tail(select, form, chosen, outputs)
    row_wise = frame.core is not None and not form.distinct
    at = frame.position if row_wise else None
    return Released(chosen, columns, frame.core if row_wise else None, at, frozenset(frame.tables))


def _tail(select: exp.Select, form: SelectParts, chosen: exp.Select, outputs: _Outputs) -> None:
    if form.distinct:
        chosen.set("distinct", exp.Distinct())
    if select.args.get("windows"):
        raise refused(
            "named windows are not answered", select, construct="WINDOW", remedy="write the window in OVER (…)"
        )
    if select.args.get("qualify") is not None:
        chosen.set("qualify", exp.Qualify(this=outputs.tree(select.args["qualify"].this)))
    if select.args.get("order") is not None:
        parts = [_ordered(part, form, outputs) for part in select.args["order"].expressions]
        chosen.set("order", exp.Order(expressions=parts))
    for key in ("limit", "offset"):
        if select.args.get(key) is not None:
            chosen.set(key, row_count(select.args[key]))


def _ordered(part: exp.Expression, form: SelectParts, outputs: _Outputs) -> exp.Ordered:
    """An output named by position, alias or its own expression is ordered by position: DISTINCT needs that."""
    node = part.this
    if isinstance(node, exp.Literal) and not node.is_string:
        return order_term(part, position(node, len(form.nodes), "ORDER BY"))
    at = _output(node, form)
    return order_term(part, at + 1 if at is not None else outputs.tree(node))


def order_term(part: exp.Expression, by: int | exp.Expression) -> exp.Ordered:
    """One term of ORDER BY: a position or a tree, with the flags that were written."""
    tree = by if isinstance(by, exp.Expression) else exp.Literal(this=str(by), is_string=False)
    flags = {key: bool(part.args.get(key)) for key in ("desc", "nulls_first") if part.args.get(key) is not None}
    return exp.Ordered(this=tree, **flags)


def _output(node: exp.Expression, form: SelectParts) -> int | None:
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in form.aliases:
        meant: exp.Expression = form.aliases[node.name.lower()]
        return next((i for i, other in enumerate(form.nodes) if other is meant), None)
    return next((i for i, other in enumerate(form.nodes) if other == node), None)


def row_count(node: exp.Expression) -> exp.Expression:
    """LIMIT or OFFSET with its whole number."""
    amount = node.expression
    if not isinstance(amount, exp.Literal) or not re.fullmatch("[0-9]{1,12}", str(amount.this)):
        construct = type(node).key.upper()
        raise refused(f"{construct} takes a whole number", node, construct=construct, remedy=f"write {construct} 10")
    return type(node)(expression=exp.Literal(this=str(amount.this), is_string=False))
