"""Binding: from the analyst's names to columns of the catalog.

Tables are found by registered name alone, compared without case (also when quoted), because every declared
name is lower-case. A CTE may not take the name of a registered table: engines disagree on which one wins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from sqlglot import exp

from service.core.schema import Table
from service.sql.expr.canonical import conjuncts, operands
from service.sql.expr.comparisons import in_one_type
from service.sql.expr.compiler import CHAIN, Compiler
from service.sql.expr.values import Value
from service.sql.refusals import refused
from service.sql.rows.joins import Equality, LeftJoin, aliases_of, join
from service.sql.rows.relations import Context, Fields, Relation, materialise, scan, under_asked_bounds


@dataclass(frozen=True, slots=True)
class Cte:
    """A named query, bound where it is used."""

    name: str
    query: exp.Expression
    columns: tuple[str, ...]
    env: "Env"


Env = Mapping[str, Cte]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with a unit (or public rows) and their visible columns."""

    relation: Relation
    fields: Fields


@dataclass(slots=True)
class RowScope:
    """What names mean inside one SELECT over private rows: the columns of its FROM items."""

    items: list[tuple[str, Fields]] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)  # USING columns
    parent: "RowScope | None" = None
    unit: exp.Column | None = None
    semi: "Callable[[exp.Expression, RowScope], Value] | None" = None

    def column(self, node: exp.Column) -> Value:
        found = self.find(node)
        if found is not None:
            return found.fresh()
        shown = f"{node.table}.{node.name}" if node.table else node.name
        names = sorted({column for _, fields in self.items for column in fields})
        raise refused(f"column {shown[:80]} is not known here", node, construct="column", remedy=_instead(node, names))

    def find(self, node: exp.Column) -> Value | None:
        wanted, qualifier = node.name.lower(), node.table.lower()
        hits = [
            fields[wanted] for item, fields in self.items if wanted in fields and (not qualifier or qualifier == item)
        ]
        if len(hits) > 1 and wanted not in self.merged:
            raise refused(f"{wanted} is ambiguous", node, construct="column", remedy=f"write table.{wanted}")
        if hits:
            return hits[0]
        return self.parent.find(node) if self.parent is not None else None

    def semi_join(self, node: exp.Expression) -> Value:
        assert self.semi is not None
        return self.semi(node, self)

    def special(self, node: exp.Expression) -> Value | None:
        return None


def _instead(node: exp.Column, names: list[str]) -> str:
    """What may have been meant: an output, which WHERE does not know yet, or a name that is spelled nearly so."""
    chosen = node.find_ancestor(exp.Select)
    outputs = {part.alias.lower() for part in chosen.expressions if isinstance(part, exp.Alias)} if chosen else set()
    if not node.table and node.name.lower() in outputs:
        return f"{node.name[:60]} is an output: put conditions on it into HAVING, or repeat its expression here"
    return _one_of(node.name, names)


def _one_of(given: str, names: list[str]) -> str:
    near = get_close_matches(given.lower()[:80], names, 1, 0.75)
    return (f"did you mean {near[0]}? " if near else "") + f"use one of: {', '.join(names)[:300]}"


def identifier(node: exp.Expression | None) -> str:
    return node.name.lower() if node is not None else ""


def with_ctes(node: exp.Expression, env: Env, context: Context) -> Env:
    """The environment inside a query with a WITH clause."""
    clause = node.args.get("with_")
    if clause is None:
        return env
    found = dict(env)
    for cte in clause.expressions:
        label = cte.alias.lower()
        if label in context.schema.tables:
            raise refused(f"{label} is the name of a table", cte, construct="WITH", remedy=f"call it {label}_2 instead")
        columns = tuple(identifier(column) for column in cte.args["alias"].args.get("columns") or ())
        found[label] = Cte(label, cte.this, columns, dict(found))
    return found


def find_table(node: exp.Table, context: Context) -> Table:
    """The registered table that a name means, or a refusal."""
    label = node.name.lower()
    found = context.schema.tables.get(label)
    if found is None:
        raise refused(
            f"table {label[:80]} is not registered",
            node,
            construct="table",
            remedy=_one_of(label, sorted(context.schema.tables)),
        )
    return found


def renamed(fields: Fields, columns: tuple[str, ...], node: exp.Expression) -> Fields:
    """`AS t(a, b)`: new names, same values; the unit travels by lineage."""
    if not columns:
        return fields
    if len(columns) > len(fields) or len(set(columns)) != len(columns):
        raise refused(
            "the list of column names does not fit", node, construct="AS t(…)", remedy="name each column once"
        )
    names = [*columns, *list(fields)[len(columns) :]]
    return dict(zip(names, fields.values(), strict=True))


def alias_columns(node: exp.Expression) -> tuple[str, ...]:
    """The names in `AS t(a, b)`."""
    alias = node.args.get("alias")
    return tuple(identifier(column) for column in alias.args.get("columns") or ()) if alias is not None else ()


@dataclass(frozen=True, slots=True)
class FromItem:
    """One bound FROM item: its visible name and its rows; `join` is the Join node that brought it."""

    name: str
    rows: Rows
    join: exp.Join | None
    node: exp.Expression


def table_rows(found: Table, context: Context) -> Rows:
    """All rows of a registered table."""
    return Rows(*scan(found, context))


def named_rows(rows: Rows, label: str, context: Context) -> Rows:
    """Rows of a subquery, whose columns answer to bounds given for `label.column`."""
    return replace(
        rows, fields={key: under_asked_bounds(value, f"{label}.{key}", context) for key, value in rows.fields.items()}
    )


def relate(items: list[FromItem], scope: RowScope, where: exp.Expression | None, context: Context) -> Relation:
    """FROM and WHERE as one Relation; fills `scope` on the way, item by item."""
    items = _turned(items)
    steps: list[Relation | LeftJoin] = []
    inner: list[exp.Expression] = []
    equalities: list[Equality] = []
    compiler = Compiler(scope)
    units = [item.rows.relation.unit for item in items if item.rows.relation.unit is not None]
    scope.unit = units[0] if units else None
    later: list[exp.Expression] = []
    for item in items:
        rows, side = item.rows, _side(item.join)
        if side == "LEFT" and not rows.relation.bare:
            rows = Rows(*materialise(rows.relation, rows.fields, context))
        fields = {key: _null_side(value) for key, value in rows.fields.items()} if side == "LEFT" else rows.fields
        using = _using(item, scope)
        if side == "LEFT":
            scope.items.append((item.name, rows.fields))
            on = using + (conjuncts(item.join.args.get("on")) if item.join is not None else [])
            trees, links = _conditions(on, compiler)
            steps.append(LeftJoin(rows.relation, tuple(trees), tuple(links), item.join or item.node))
            scope.items[-1] = (item.name, fields)
            continue
        scope.items.append((item.name, fields))
        steps.append(rows.relation)
        later += using
        if item.join is not None:
            trees, links = _conditions(conjuncts(item.join.args.get("on")), compiler)
            inner += trees
            equalities += links
    trees, links = _conditions(later + conjuncts(where), compiler)
    return join(steps, inner + trees, equalities + links, items[-1].join or items[-1].node)


def _conditions(parts: list[exp.Expression], compiler: Compiler) -> tuple[list[exp.Expression], list[Equality]]:
    if len(parts) > CHAIN:
        remedy = "use IN (…), or put the values into a public table"
        raise refused(f"more than {CHAIN} conditions in a row", parts[0], construct="AND", remedy=remedy)
    trees, links = [], []
    for part in [*parts, *(shared for whole in parts for shared in _shared(whole))]:
        value = compiler.boolean(part)
        if isinstance(value.tree, exp.And):
            trees += conjuncts(value.tree)
        else:
            trees.append(value.tree)
        if isinstance(part, exp.EQ):
            links.append(_equality(compiler.value(part.this), compiler.value(part.expression), part))
    return trees, links


def _equality(left: Value, right: Value, node: exp.Expression) -> Equality:
    """As the engine will compare them: a unique number is no longer unique once it is cast to DOUBLE."""
    a, b = in_one_type(left, right, node)
    return Equality(a, b, aliases_of(a.tree), aliases_of(b.tree))


def _shared(part: exp.Expression) -> list[exp.Expression]:
    """Conjuncts that every branch of an OR repeats: they hold on their own, and may be what joins two tables."""
    while isinstance(part, exp.Paren):
        part = part.this
    if not isinstance(part, exp.Or):
        return []
    first, *others = (conjuncts(branch) for branch in operands(part, exp.Or))
    return [one for one in first if all(one in other for other in others)]


def _null_side(value: Value) -> Value:
    """A null-extended column no longer identifies the unit; it still must not be shown."""
    return replace(value, tokens=frozenset())


def _using(item: FromItem, scope: RowScope) -> list[exp.Expression]:
    """USING (a) is left.a = right.a."""
    found: list[exp.Expression] = []
    for column in (item.join.args.get("using") or []) if item.join is not None else []:
        label = column.name.lower()
        owners = [name for name, fields in scope.items if label in fields]
        if not owners or label not in item.rows.fields:
            raise refused(f"{label} is not on both sides", column, construct="USING", remedy="write ON a.x = b.y")
        scope.merged.add(label)
        left, right = (exp.column(label, table=owner) for owner in (owners[0], item.name))
        found.append(exp.EQ(this=left, expression=right))
    return found


def _side(node: exp.Join | None) -> str:
    return "" if node is None else str(node.args.get("side") or "").upper()


def _turned(items: list[FromItem]) -> list[FromItem]:
    """a RIGHT JOIN b is b LEFT JOIN a, where it is the first join; every other kind is refused."""
    for position, item in enumerate(items):
        side = _side(item.join)
        kind = str(item.join.args.get("kind") or "").upper() if item.join is not None else ""
        if kind not in ("", "INNER", "CROSS", "OUTER") or side not in ("", "LEFT", "RIGHT"):
            raise refused(
                f"{side or kind} JOIN is not answered",
                item.join,
                construct=f"{side or kind} JOIN",
                remedy="use INNER JOIN or LEFT JOIN; write a semi-join as unit IN (SELECT unit …)",
            )
        if side == "RIGHT" and position != 1:
            remedy = "write it as a LEFT JOIN with the two sides swapped"
            raise refused("RIGHT JOIN after another join", item.join, construct="RIGHT JOIN", remedy=remedy)
    if len(items) > 1 and _side(items[1].join) == "RIGHT":
        turned = items[1].join
        assert turned is not None
        left = turned.copy()
        left.set("side", "LEFT")
        return [replace(items[1], join=None), replace(items[0], join=left), *items[2:]]
    return items
