"""Queries above a core: SELECT and UNION over released values and public tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from service.core.prepared import POSITION
from service.core.schema import SqlType
from service.sql.expr.trees import cast_to, name, subquery, table
from service.sql.outer.over_core import ReleasedScope, Resolved, finish, order_term, row_count
from service.sql.outer.translate import Translator
from service.sql.read.select import position, select_parts
from service.sql.refusals import refused
from service.sql.rows.bind import Env, find_table
from service.sql.rows.kinds import OuterColumn, Public, QueryWalk, Released, Result, Source, Used


def released_or_public(walk: QueryWalk, result: Result, node: exp.Expression) -> Released:
    """A query that outer SQL may read: a released one, or a public one as if it were."""
    if isinstance(result, Released):
        return result
    if isinstance(result, Public):
        if isinstance(result.query, exp.Union):
            sides = [walk.query(part, result.env) for part in (result.query.this, result.query.expression)]
            return outer_union(walk, result.query, sides)
        assert isinstance(result.query, exp.Select)
        return outer_select(walk, result.query, result.env, walk.items(result.query, result.env))
    raise refused(
        "private rows are never returned, only aggregates of them",
        node,
        construct="SELECT",
        remedy="aggregate: SELECT key, COUNT(*) … GROUP BY key",
    )


@dataclass(frozen=True, slots=True)
class _Sources:
    """FROM items: their columns by visible name, their trees, the public tables they read."""

    columns: dict[str, Mapping[str, OuterColumn]]
    trees: list[exp.Expression]
    tables: frozenset[str]
    core: int | None

    def resolve(self, node: exp.Expression, merged: set[str]) -> Resolved | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        wanted, qualifier = node.name.lower(), node.table.lower()
        hits = [label for label, known in self.columns.items() if wanted in known and qualifier in ("", label)]
        if len(hits) > 1 and wanted not in merged:
            raise refused(f"{wanted} is ambiguous", node, construct="column", remedy=f"write table.{wanted}")
        if not hits:
            return None
        return name(wanted, f"f{list(self.columns).index(hits[0])}"), self.columns[hits[0]][wanted]

    @property
    def uses(self) -> Used:
        return tuple(
            dict.fromkeys(use for part in self.columns.values() for made in part.values() for use in made.uses)
        )


def _sources(walk: QueryWalk, items: list[Source]) -> _Sources:
    columns: dict[str, Mapping[str, OuterColumn]] = {}
    trees: list[exp.Expression] = []
    tables: set[str] = set()
    core = None
    for index, (label, result, _, node) in enumerate(items):
        if isinstance(result, Public) and isinstance(result.query, exp.Table):
            found = find_table(result.query, walk.context)
            tables.add(found.name)
            columns[label] = {column.name: OuterColumn(column.type) for column in found.columns.values()}
            trees.append(table(found.name, f"f{index}"))
            continue
        released = released_or_public(walk, result, node)
        tables |= released.tables
        core = released.core
        columns[label] = {key.lower(): made for key, made in released.columns.items()}
        trees.append(subquery(released.tree(positioned=True), f"f{index}"))
    return _Sources(columns, trees, frozenset(tables), core)


def outer_select(walk: QueryWalk, select: exp.Select, env: Env, items: list[Source]) -> Released:
    """A SELECT over released and public tables; row-wise when it only filters and computes over one core."""
    if not items:
        raise refused("a FROM clause is needed", select, construct="SELECT", remedy="name a table in FROM")
    sources = _sources(walk, items)
    merged = {
        column.name.lower() for _, _, join, _ in items if join is not None for column in join.args.get("using") or []
    }
    known = {column for part in sources.columns.values() for column in part}
    form = select_parts(select, list(sources.columns.items()), known, merged)
    row_wise = len(items) == 1 and sources.core is not None and not form.grouped
    frame = ReleasedScope(
        lambda node: sources.resolve(node, merged),
        lambda node: released_or_public(walk, walk.query(node, env), node),
        exp.From(this=sources.trees[0]),
        sources.core if row_wise else None,
        name(POSITION, "f0") if row_wise else None,
        aggregates=bool(form.groups or form.aggregates),
        tables=set(sources.tables),
        uses=sources.uses if form.grouped else (),
    )
    rows = Translator(frame.resolve, frame.subquery)
    frame.joins = [
        _join(join, tree, rows)
        for (_, _, join, _), tree in zip(items[1:], sources.trees[1:], strict=True)
        if join is not None
    ]
    if select.args.get("where") is not None:
        frame.where = rows.tree(select.args["where"].this)
    frame.group = [_group(rows.tree(node)) for node in form.groups]
    return finish(select, form, frame)


def _group(tree: exp.Expression) -> exp.Expression:
    """A bare number in GROUP BY would be read as a position."""
    return cast_to(tree, "DOUBLE") if isinstance(tree, exp.Literal) and not tree.is_string else tree


def _join(node: exp.Join, tree: exp.Expression, translator: Translator) -> exp.Join:
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
        remedy = "use INNER, LEFT, RIGHT or FULL JOIN"
        raise refused(f"{side or kind} JOIN is not answered", node, construct="JOIN", remedy=remedy)
    made = exp.Join(this=tree)
    if side:
        made.set("side", side)
    if node.args.get("on") is not None:
        made.set("on", translator.tree(node.args["on"]))
    elif node.args.get("using"):
        made.set("using", [exp.Identifier(this=column.name.lower(), quoted=True) for column in node.args["using"]])
    else:
        made.set("kind", "CROSS")
    return made


def rename(result: Released, columns: Iterable[str], node: exp.Expression) -> Released:
    """`AS t(a, b)` over a released query."""
    wanted = list(columns)
    names = [*wanted, *list(result.columns)[len(wanted) :]]
    if len(wanted) > len(result.columns) or len(set(names)) < len(names) or not isinstance(result.select, exp.Select):
        raise refused(
            "the list of column names does not fit", node, construct="AS t(…)", remedy="name each column once"
        )
    select = result.select.copy()
    for output, label in zip(select.expressions, names, strict=True):
        output.set("alias", exp.Identifier(this=label, quoted=True))
    return replace(result, select=select, columns=dict(zip(names, result.columns.values(), strict=True)))


def outer_union(walk: QueryWalk, node: exp.Union, sides: list[Result]) -> Released:
    """UNION [ALL] of released and public queries."""
    left, right = (released_or_public(walk, side, node) for side in sides)
    if len(left.columns) != len(right.columns):
        remedy = "select the same columns"
        raise refused("the two sides have different numbers of columns", node, construct="UNION", remedy=remedy)
    tree = exp.Union(this=left.tree(), expression=right.tree(), distinct=bool(node.args.get("distinct")))
    labels = list(left.columns)
    if node.args.get("order") is not None:
        parts = [order_term(part, _named(part.this, labels)) for part in node.args["order"].expressions]
        tree.set("order", exp.Order(expressions=parts))
    for key in ("limit", "offset"):
        if node.args.get(key) is not None:
            tree.set(key, row_count(node.args[key]))
    columns = {
        label: OuterColumn(_same(a.type, b.type), None, tuple(dict.fromkeys((*a.uses, *b.uses))))
        for label, a, b in zip(labels, left.columns.values(), right.columns.values(), strict=True)
    }
    return Released(tree, columns, tables=left.tables | right.tables)


def _same(a: SqlType | None, b: SqlType | None) -> SqlType | None:
    return a if a == b else None


def _named(node: exp.Expression, labels: list[str]) -> int:
    lowered = [label.lower() for label in labels]
    if isinstance(node, exp.Literal) and not node.is_string:
        return position(node, len(labels), "ORDER BY")
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in lowered:
        return lowered.index(node.name.lower()) + 1
    remedy = "use an output's name or position"
    raise refused("ORDER BY after UNION names an output", node, construct="ORDER BY", remedy=remedy)
