"""SELECTs over released values: the outside of a core, and queries above it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.plan import POSITION
from service.core.schema import SqlType
from service.sql.bind import Env, RowScope, find_table
from service.sql.canon import aliased, name, subquery, table, text
from service.sql.expressions import Compiler
from service.sql.measures import Call
from service.sql.outer import Made, Translator, Used
from service.sql.plan import column_type
from service.sql.refusals import refused
from service.sql.select import Shape, position, shape
from service.sql.split import Public, Released, Result, Splitter

Resolved = tuple[exp.Expression, Made]
Items = list[tuple[str, Result, exp.Join | None, exp.Expression]]


def core_select(
    splitter: Splitter,
    select: exp.Select,
    env: Env,
    form: Shape,
    core: int,
    placed: Mapping[int, Call],
    scope: RowScope,
) -> Released:
    """The outside of a core: its outputs, HAVING, ORDER BY … over the released keys and aggregates."""
    made = splitter.cores[core]
    label = f"core_{core}"
    kinds = {type(node) for node in form.groups} | ({type(node) for node in form.nodes} if form.distinct else set())

    def resolve(node: exp.Expression) -> Resolved | None:
        if id(node) in placed:
            return _released(splitter, core, made.calls[placed[id(node)]])
        if type(node) in kinds and (not isinstance(node, exp.Column) or scope.find(node) is not None):
            try:
                key = made.keys.get(text(Compiler(scope).value(node).tree))
            except ConstructRefused:
                return None
            return None if key is None else _released(splitter, core, key)
        return None

    return _finish(
        splitter, select, env, form, _Frame(resolve, exp.From(this=table(label, label)), core, name(POSITION, label))
    )


def _released(splitter: Splitter, core: int, column: str) -> Resolved:
    item = column_type(splitter.cores[core].plan, column)
    uses: Used = ((core, column),) if column.startswith("a") else ()
    tree = name(column, f"core_{core}")
    return tree, Made(item.type, (core, column), uses, name(column))


class _Frame:
    """Where a released SELECT reads from, and how its names resolve."""

    def __init__(self, resolve, source: exp.From, core: int | None, at: exp.Column | None) -> None:  # type: ignore[no-untyped-def]
        self.resolve, self.source, self.core, self.position = resolve, source, core, at
        self.joins: list[exp.Join] = []
        self.where: exp.Expression | None = None
        self.group: list[exp.Expression] = []
        self.aggregates = False
        self.tables: frozenset[str] = frozenset()
        self.uses: Used = ()


def _finish(splitter: Splitter, select: exp.Select, env: Env, form: Shape, frame: _Frame) -> Released:
    """Outputs, conditions, order and limit, all through one translator."""
    busy: set[str] = set()
    tables: set[str] = set(frame.tables)

    def resolve(node: exp.Expression) -> Resolved | None:
        known = frame.resolve(node)
        if known is not None or not isinstance(node, exp.Column) or node.table:
            return known
        label = node.name.lower()
        if label not in form.aliases or label in busy:
            return None
        busy.add(label)  # an alias is not visible inside itself
        try:
            return translator(form.aliases[label])
        finally:
            busy.discard(label)

    def nested(node: exp.Expression) -> tuple[exp.Expression, Used]:
        result = as_released(splitter, splitter.query(node, env), node)
        tables.update(result.tables)
        return result.tree(), tuple(dict.fromkeys(use for column in result.columns.values() for use in column.uses))

    def translator(node: exp.Expression) -> Resolved:
        return Translator(resolve, nested, frame.aggregates).output(node)

    outputs: list[exp.Expression] = []
    columns: dict[str, Made] = {}
    for label, node in zip(form.names, form.nodes, strict=True):
        tree, made = translator(node)
        if isinstance(made, Made) and frame.uses:
            made = replace(made, uses=tuple(dict.fromkeys((*made.uses, *frame.uses))), direct=None, expression=None)
        outputs.append(aliased(tree, label))
        columns[label] = made
    chosen = exp.Select(expressions=outputs, from_=frame.source)
    if frame.joins:
        chosen.set("joins", frame.joins)
    conditions = [part for part in (frame.where,) if part is not None]
    if form.having is not None and not frame.aggregates:
        conditions.append(translator(form.having)[0])
    if conditions:
        chosen.set("where", exp.Where(this=conditions[0]))
    if frame.group:
        chosen.set("group", exp.Group(expressions=frame.group))
    if form.having is not None and frame.aggregates:
        chosen.set("having", exp.Having(this=translator(form.having)[0]))
    _tail(select, form, chosen, translator)
    if form.distinct:
        chosen.set("distinct", exp.Distinct())
    row_wise = frame.core is not None and not form.distinct
    return Released(
        chosen, columns, frame.core if row_wise else None, frame.position if row_wise else None, frozenset(tables)
    )


def _tail(select: exp.Select, form: Shape, chosen: exp.Select, translator) -> None:  # type: ignore[no-untyped-def]
    if select.args.get("windows"):
        raise refused(
            "named windows are not answered", select, construct="WINDOW", remedy="write the window in OVER (…)"
        )
    if select.args.get("qualify") is not None:
        chosen.set("qualify", exp.Qualify(this=translator(select.args["qualify"].this)[0]))
    if select.args.get("order") is not None:
        chosen.set(
            "order",
            exp.Order(expressions=[_ordered(part, form, translator) for part in select.args["order"].expressions]),
        )
    for key in ("limit", "offset"):
        if select.args.get(key) is not None:
            chosen.set(key, _count(select.args[key]))


def _ordered(part: exp.Expression, form: Shape, translator) -> exp.Ordered:  # type: ignore[no-untyped-def]
    """An output named by position, alias or its own expression is ordered by position: DISTINCT needs that."""
    node = part.this
    if isinstance(node, exp.Literal) and not node.is_string:
        tree: exp.Expression = exp.Literal(this=str(position(node, len(form.nodes), "ORDER BY")), is_string=False)
    else:
        at = _output(node, form)
        tree = exp.Literal(this=str(at + 1), is_string=False) if at is not None else translator(node)[0]
    flags = {key: bool(part.args.get(key)) for key in ("desc", "nulls_first") if part.args.get(key) is not None}
    return exp.Ordered(this=tree, **flags)


def _output(node: exp.Expression, form: Shape) -> int | None:
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in form.aliases:
        meant: exp.Expression = form.aliases[node.name.lower()]
        return next((i for i, other in enumerate(form.nodes) if other is meant), None)
    return next((i for i, other in enumerate(form.nodes) if other == node), None)


def _count(node: exp.Expression) -> exp.Expression:
    amount = node.expression
    if not isinstance(amount, exp.Literal) or not str(amount.this).isdigit() or len(str(amount.this)) > 12:
        construct = type(node).key.upper()
        raise refused(f"{construct} takes a whole number", node, construct=construct, remedy=f"write {construct} 10")
    return type(node)(expression=exp.Literal(this=str(amount.this), is_string=False))


# --- Above a core ----------------------------------------------------------------------------------


def as_released(splitter: Splitter, result: Result, node: exp.Expression) -> Released:
    """What the outer SQL may read: released queries and public ones."""
    if isinstance(result, Released):
        return result
    if isinstance(result, Public):
        if isinstance(result.query, exp.Union):
            sides = [splitter.query(part, result.env) for part in (result.query.this, result.query.expression)]
            return outer_union(splitter, result.query, result.env, sides)
        assert isinstance(result.query, exp.Select)
        return outer_select(splitter, result.query, result.env, splitter.items(result.query, result.env))
    raise refused(
        "private rows are never returned, only aggregates of them",
        node,
        construct="SELECT",
        remedy="aggregate: SELECT key, COUNT(*) … GROUP BY key",
    )


def outer_select(splitter: Splitter, select: exp.Select, env: Env, items: Items) -> Released:
    """A SELECT over released and public tables."""
    columns: dict[str, Mapping[str, Made]] = {}
    sources: list[exp.Expression] = []
    tables: set[str] = set()
    core, uses = None, []
    for index, (label, result, _, node) in enumerate(items):
        alias = f"f{index}"
        if isinstance(result, Public) and isinstance(result.query, exp.Table):
            found = find_table(result.query, splitter.context)
            tables.add(found.name)
            columns[label] = {column.name: Made(column.type) for column in found.columns.values()}
            sources.append(table(found.name, alias))
            continue
        released = as_released(splitter, result, node)
        tables |= released.tables
        core = released.core
        columns[label] = {key.lower(): made for key, made in released.columns.items()}
        sources.append(subquery(released.tree(positioned=True), alias))
        if isinstance(released.select, exp.Select) and released.select.args.get("limit") is None:
            continue
        uses += [use for made in released.columns.values() for use in made.uses]
    return _above(splitter, select, env, items, _Sources(columns, sources, frozenset(tables), core))


class _Sources:
    def __init__(
        self,
        columns: dict[str, Mapping[str, Made]],
        trees: list[exp.Expression],
        tables: frozenset[str],
        core: int | None,
    ) -> None:
        self.columns, self.trees, self.tables, self.core = columns, trees, tables, core


def _above(splitter: Splitter, select: exp.Select, env: Env, items: Items, sources: _Sources) -> Released:
    aliases = {label: f"f{index}" for index, label in enumerate(sources.columns)}
    merged = {
        column.name.lower() for _, _, join, _ in items if join is not None for column in join.args.get("using") or []
    }

    def resolve(node: exp.Expression) -> Resolved | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        wanted, qualifier = node.name.lower(), node.table.lower()
        hits = [label for label, known in sources.columns.items() if wanted in known and qualifier in ("", label)]
        if len(hits) > 1 and wanted not in merged:
            raise refused(f"{wanted} is ambiguous", node, construct="column", remedy=f"write table.{wanted}")
        if not hits:
            return None
        made = sources.columns[hits[0]][wanted]
        return name(_spelled(sources, hits[0], wanted), aliases[hits[0]]), made

    known = {column for part in sources.columns.values() for column in part}
    form = shape(select, list(sources.columns.items()), known, merged)
    row_wise = len(items) == 1 and sources.core is not None and not form.grouped
    at = name(POSITION, "f0") if row_wise else None
    source = exp.From(this=sources.trees[0]) if sources.trees else None
    if source is None:
        raise refused("a FROM clause is needed", select, construct="SELECT", remedy="name a table in FROM")
    frame = _Frame(resolve, source, sources.core if row_wise else None, at)
    frame.tables, frame.aggregates = sources.tables, bool(form.groups or form.aggregates)
    conditions = _plain_translator(splitter, env, resolve)
    frame.joins = [
        _join(join, tree, conditions)
        for (_, _, join, _), tree in zip(items[1:], sources.trees[1:], strict=True)
        if join is not None
    ]
    if select.args.get("where") is not None:
        frame.where = conditions.tree(select.args["where"].this)
    frame.group = [conditions.tree(node) for node in form.groups]
    if not row_wise:
        frame.uses = _everything(sources) if form.grouped else ()
    return _finish(splitter, select, env, form, frame)


def _spelled(sources: _Sources, label: str, column: str) -> str:
    """The output's own spelling: emitted names are quoted, and other engines heed the case."""
    return next((key for key in sources.columns[label] if key == column), column)


def _everything(sources: _Sources) -> Used:
    return tuple(dict.fromkeys(use for part in sources.columns.values() for made in part.values() for use in made.uses))


def _plain_translator(splitter: Splitter, env: Env, resolve) -> Translator:  # type: ignore[no-untyped-def]
    def nested(node: exp.Expression) -> tuple[exp.Expression, Used]:
        return as_released(splitter, splitter.query(node, env), node).tree(), ()

    return Translator(resolve, nested)


def _join(node: exp.Join, tree: exp.Expression, translator: Translator) -> exp.Join:
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise refused(
            f"{side or kind} JOIN is not answered", node, construct="JOIN", remedy="use INNER, LEFT, RIGHT or FULL JOIN"
        )
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
    if len(wanted) > len(result.columns) or not isinstance(result.select, exp.Select):
        raise refused(
            "the list of column names does not fit", node, construct="AS t(…)", remedy="name each column once"
        )
    names = [*wanted, *list(result.columns)[len(wanted) :]]
    select = result.select.copy()
    for output, label in zip(select.expressions, names, strict=True):
        output.set("alias", exp.Identifier(this=label, quoted=True))
    return replace(result, select=select, columns=dict(zip(names, result.columns.values(), strict=True)))


def outer_union(splitter: Splitter, node: exp.Union, env: Env, sides: list[Result]) -> Released:
    left, right = (as_released(splitter, side, node) for side in sides)
    if len(left.columns) != len(right.columns):
        raise refused(
            "the two sides have different numbers of columns", node, construct="UNION", remedy="select the same columns"
        )
    tree = exp.Union(this=left.tree(), expression=right.tree(), distinct=bool(node.args.get("distinct")))
    labels = list(left.columns)
    if node.args.get("order") is not None:
        tree.set(
            "order", exp.Order(expressions=[_union_order(part, labels) for part in node.args["order"].expressions])
        )
    for key in ("limit", "offset"):
        if node.args.get(key) is not None:
            tree.set(key, _count(node.args[key]))
    columns = {
        label: Made(_same(a.type, b.type), None, tuple(dict.fromkeys((*a.uses, *b.uses))))
        for label, a, b in zip(labels, left.columns.values(), right.columns.values(), strict=True)
    }
    return Released(tree, columns, tables=left.tables | right.tables)


def _same(a: SqlType | None, b: SqlType | None) -> SqlType | None:
    return a if a == b else None


def _union_order(part: exp.Expression, labels: list[str]) -> exp.Ordered:
    node = part.this
    lowered = [label.lower() for label in labels]
    if isinstance(node, exp.Literal) and not node.is_string:
        at = position(node, len(labels), "ORDER BY")
    elif isinstance(node, exp.Column) and not node.table and node.name.lower() in lowered:
        at = lowered.index(node.name.lower()) + 1
    else:
        raise refused(
            "ORDER BY after UNION names an output",
            node,
            construct="ORDER BY",
            remedy="use an output's name or position",
        )
    flags = {key: bool(part.args.get(key)) for key in ("desc", "nulls_first") if part.args.get(key) is not None}
    return exp.Ordered(this=exp.Literal(this=str(at), is_string=False), **flags)
