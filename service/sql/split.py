"""The walk over a query that splits it into private cores and free outer SQL.

in   an allow-listed tree
out  Rows (private rows: not an answer yet), Released (SQL over released cores) or Public (public tables alone)

A SELECT that aggregates private rows without grouping by the unit is a core: its keys and aggregates are
released, and whatever it does with them (HAVING, ORDER BY, arithmetic, windows) runs on released values.
Everything above a core only sees released values. Whatever is below it keeps the unit.
"""

from dataclasses import dataclass, field, replace

from sqlglot import exp

from service.sql.cores.build_plan import Core, Grouping, build
from service.sql.cores.measures import Collector, show_unit
from service.sql.expr.canonical import canonical_text
from service.sql.expr.compiler import Compiler
from service.sql.expr.values import Value
from service.sql.outer.over_core import CoreView, core_select
from service.sql.outer.over_released import outer_select, outer_union, released_or_public, rename
from service.sql.read.aggregates import asked
from service.sql.read.parse import SOURCES
from service.sql.read.select import SelectParts, select_parts
from service.sql.refusals import refused
from service.sql.rows.bind import (
    Env,
    FromItem,
    Rows,
    RowScope,
    alias_columns,
    find_table,
    named_rows,
    relate,
    renamed,
    table_rows,
    with_ctes,
)
from service.sql.rows.kinds import Public, Released, Result, Source
from service.sql.rows.per_unit import per_unit
from service.sql.rows.relations import Context, Relation
from service.sql.rows.semi_joins import no_tail, semi_join
from service.sql.rows.unions import union_all


@dataclass(slots=True)
class Splitter:
    """One walk over one query. `cores` fills up on the way, equal cores once."""

    context: Context
    top: exp.Expression
    cores: list[Core] = field(default_factory=list)
    released: dict[int, Released] = field(default_factory=dict)  # a CTE is released once, however often it is read
    read: int = 0  # tables so far, each as often as it will be read

    def query(self, node: exp.Expression, env: Env, parent: RowScope | None = None) -> Result:
        """What a query turns out to be; `parent` is the scope around it where it may read outer rows."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, with_ctes(node, env, self.context), parent)
        env = with_ctes(node, env, self.context)
        if isinstance(node, exp.Union):
            return self._union(node, env, parent)
        if not isinstance(node, exp.Select):
            raise refused("a SELECT is expected here", node, construct=type(node).key.upper(), remedy="write a SELECT")
        items = self.items(node, env)
        kinds = {type(part) for _, part, _, _ in items}
        if Released in kinds:
            if any(isinstance(part, Rows) and part.relation.private for _, part, _, _ in items):
                raise refused(
                    "released groups can not be joined with private rows",
                    node,
                    construct="JOIN",
                    remedy="aggregate the private rows in their own WITH query first, then join the two",
                )
            return outer_select(self, node, env, items)
        if any(isinstance(part, Rows) and part.relation.private for _, part, _, _ in items) or (
            parent is not None and items
        ):
            return self._private(node, env, items, parent)
        return Public(node, env)

    # --- FROM --------------------------------------------------------------------------------------

    def items(self, select: exp.Select, env: Env) -> list[Source]:
        """The FROM items of a SELECT, each bound to what it is."""
        clause = select.args.get("from_")
        sources: list[tuple[exp.Expression, exp.Join | None]] = [(clause.this, None)] if clause is not None else []
        sources += [(join.this, join) for join in select.args.get("joins") or []]
        found: list[Source] = []
        for source, join in sources:
            label, result = self._source(source, env)
            self._count(result, source)
            if any(label == other for other, _, _, _ in found):
                raise refused(
                    f"{label} is used twice", source, construct="FROM", remedy="give each table its own alias"
                )
            found.append((label, result, join, source))
        return found

    def _count(self, result: Result, source: exp.Expression) -> None:
        """A WITH query that reads another twice, which reads another twice …: a short text would read millions."""
        self.read += sum(1 for _ in result.select.find_all(exp.Table)) if isinstance(result, Released) else 1
        if self.read > SOURCES:
            raise refused(
                f"more than {SOURCES} tables are read, counting each use of a WITH query",
                source,
                construct="FROM",
                remedy="read each table less often: UNION ALL of a query with itself is its rows twice",
            )

    def _source(self, source: exp.Expression, env: Env) -> tuple[str, Result]:
        columns = alias_columns(source)
        if isinstance(source, exp.Subquery):
            label = source.alias.lower() or f"subquery {id(source)}"
            result = self.query(source, env)
        elif isinstance(source, exp.Table) and source.name.lower() in env:
            cte = env[source.name.lower()]
            label = source.alias.lower() or cte.name
            result = self._cte(cte.query, cte.env)
            columns = columns or cte.columns
            if isinstance(result, Rows):
                result = named_rows(result, cte.name, self.context)
        elif isinstance(source, exp.Table):
            table = find_table(source, self.context)
            label = source.alias.lower() or table.name
            if not table.private:
                return label, self._public_table(source, columns)
            result = table_rows(table, self.context)
        else:
            raise refused("this can not stand in FROM", source, construct="FROM", remedy="name a table or a subquery")
        if isinstance(result, Rows):
            result = replace(result, fields=renamed(result.fields, columns, source))
            if isinstance(source, exp.Subquery) and source.alias:
                result = named_rows(result, label, self.context)
        elif isinstance(result, Released) and columns:
            result = rename(result, columns, source)
        elif columns:
            raise refused(
                "public subqueries keep their column names",
                source,
                construct="AS t(…)",
                remedy="use AS inside the subquery",
            )
        return label, result

    def _public_table(self, source: exp.Table, columns: tuple[str, ...]) -> Public:
        if columns:
            raise refused(
                "public tables keep their column names", source, construct="AS t(…)", remedy="use the table's own names"
            )
        return Public(source, {})

    def _cte(self, query: exp.Expression, env: Env) -> Result:
        if id(query) not in self.released:
            result = self.query(query, env)
            if not isinstance(result, Released):
                return result
            self.released[id(query)] = result
        return self.released[id(query)]

    def rows(self, result: Result, node: exp.Expression) -> Rows:
        """A FROM item of a private query: public tables and plain public subqueries are bound here."""
        if isinstance(result, Rows):
            return result
        assert isinstance(result, Public)
        if isinstance(result.query, exp.Table):
            return table_rows(find_table(result.query, self.context), self.context)
        if isinstance(result.query, exp.Select):
            bound = self._private(result.query, result.env, self.items(result.query, result.env), None)
            if isinstance(bound, Rows):
                return bound
        raise refused(
            "only plain SELECTs of public tables can be joined to private rows",
            node,
            construct="subquery",
            remedy="join the public table itself, or register the result as a public table",
        )

    # --- SELECT over private rows ------------------------------------------------------------------

    def _private(self, select: exp.Select, env: Env, items: list[Source], parent: RowScope | None) -> Result:
        scope = RowScope(parent=parent, semi=lambda node, outer: semi_join(self, node, outer, env))
        relation = self._from(select, items, scope)
        known = {column for _, fields in scope.items for column in fields}
        form = select_parts(select, scope.items, known, scope.merged)
        if not form.grouped:
            return self._plain(select, form, scope, relation)
        if not relation.private:
            raise refused(
                "public rows can not be grouped here",
                select,
                construct="GROUP BY",
                remedy="join the public table itself",
            )
        compiler = Compiler(scope)
        nodes = form.groups or (form.nodes if form.distinct and not form.aggregates else ())
        groups = [(node, compiler.value(node)) for node in nodes]
        if any(value.tokens for _, value in groups):
            if select is self.top:
                raise show_unit(next(node for node, value in groups if value.tokens))
            no_tail(select)
            return per_unit(relation, scope, form, groups, self.context)
        if parent is not None:
            raise refused(
                "a subquery that aggregates over people can not be used row by row",
                select,
                construct="subquery",
                remedy="ask for the aggregate in its own query and write its value as a literal",
            )
        calls = Collector(compiler)
        placed = {id(node): calls.add(asked(node), node) for node in form.aggregates}
        core = build(relation, [Grouping(node, value) for node, value in groups], calls, self.context)
        self.context.names = 0  # names are fresh per core: the digest must not depend on what else was asked
        view = CoreView(self._place(core), core, placed, scope)
        return core_select(select, form, view, lambda node: released_or_public(self, self.query(node, env), node))

    def _from(self, select: exp.Select, items: list[Source], scope: RowScope) -> Relation:
        """FROM and WHERE as one relation; fills `scope`."""
        bound = [FromItem(label, self.rows(result, node), join, node) for label, result, join, node in items]
        if not bound:
            raise refused("a FROM clause is needed", select, construct="SELECT", remedy="name a table in FROM")
        where = select.args["where"].this if select.args.get("where") is not None else None
        return relate(bound, scope, where, self.context)

    def _place(self, core: Core) -> int:
        """Equal cores are one: the same rows, keys and measures, one charge. The digest alone would not do: it leaves
        out the bounds that a query gives to the columns of its subqueries."""
        plan = core.plan
        for index, other in enumerate(known.plan for known in self.cores):
            same = other.digest == plan.digest and other.measures == plan.measures
            if same and canonical_text(other.rows) == canonical_text(plan.rows):
                return index
        self.cores.append(core)
        return len(self.cores) - 1

    def _plain(self, select: exp.Select, form: SelectParts, scope: RowScope, relation: Relation) -> Rows:
        no_tail(select)
        compiler = Compiler(scope)
        fields: dict[str, Value] = {}
        for label, node in zip(form.names, form.nodes, strict=True):
            if node.find(exp.Window) is not None:
                raise refused(
                    "window functions over private rows are not answered",
                    node,
                    construct="window",
                    remedy="aggregate per unit with GROUP BY unit, or use the window over released groups",
                )
            fields[label.lower()] = compiler.value(node)
        return Rows(relation, fields)

    # --- UNION ALL ------------------------------------------------------------------

    def _union(self, node: exp.Union, env: Env, parent: RowScope | None) -> Result:
        if parent is not None:
            raise refused("UNION can not stand here", node, construct="UNION", remedy="use two conditions with OR")
        sides = [self.query(part, env) for part in (node.this, node.expression)]
        if all(isinstance(side, Public) for side in sides):
            return Public(node, env)
        if any(isinstance(side, Released) for side in sides):
            return outer_union(self, node, sides)
        if node.args.get("distinct"):
            raise refused(
                "UNION drops equal rows of different people", node, construct="UNION", remedy="write UNION ALL"
            )
        for key in ("limit", "offset"):
            if node.args.get(key) is not None:
                raise refused(f"{key.upper()} on private rows", node, construct=key.upper(), remedy="aggregate first")
        left, right = (self.rows(side, node) for side in sides)
        return union_all(left, right, node, self.context)
