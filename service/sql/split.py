"""Private core(s) and free outer SQL: one walk over the query.

in   an allow-listed tree
out  Rows (private rows: not an answer yet), Released (SQL over released cores) or Public (public tables alone)

A SELECT that aggregates private rows without grouping by the unit is a core: its keys and aggregates are
released, and whatever it does with them (HAVING, ORDER BY, arithmetic, windows) runs on released values.
Everything above a core only sees released values. Whatever is below it keeps the unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from service.core.plan import POSITION
from service.core.schema import BOOLEAN
from service.sql.aggregates import asked, own_aggregates
from service.sql.bind import (
    Env,
    Item,
    Rows,
    RowScope,
    alias_columns,
    find_table,
    named_rows,
    relate,
    renamed,
    table_rows,
    with_ctes,
)  # fmt: skip
from service.sql.canon import aliased, binary, conjuncts
from service.sql.expressions import Compiler
from service.sql.joins import aliases_of, not_on_unit
from service.sql.measures import Collector, show_unit
from service.sql.outer import Made
from service.sql.plan import Core, Grouping, build
from service.sql.refusals import refused
from service.sql.relations import Context
from service.sql.select import Shape, shape
from service.sql.units import per_unit, union_all
from service.sql.values import UNIT, Value, derived


@dataclass(frozen=True, slots=True)
class Released:
    """SQL over released tables. `core`: every row is a row of that core, at `position`."""

    select: exp.Expression
    columns: Mapping[str, Made]
    core: int | None = None
    position: exp.Column | None = None
    tables: frozenset[str] = frozenset()

    def tree(self, *, positioned: bool = False) -> exp.Expression:
        made = self.select.copy()
        if positioned and self.position is not None:
            made.append("expressions", aliased(self.position.copy(), POSITION))
        return made


@dataclass(frozen=True, slots=True)
class Public:
    """A query over public tables alone: bound where it is used."""

    query: exp.Expression
    env: Env


Result = Rows | Released | Public


@dataclass(slots=True)
class Splitter:
    """Walks the query; `cores` fills up on the way, equal cores once."""

    context: Context
    top: exp.Expression
    cores: list[Core] = field(default_factory=list)
    released: dict[int, Released] = field(default_factory=dict)  # a CTE is released once, however often it is read

    def query(self, node: exp.Expression, env: Env, parent: RowScope | None = None) -> Result:
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
            from service.sql.free import outer_select

            return outer_select(self, node, env, items)
        if any(isinstance(part, Rows) and part.relation.private for _, part, _, _ in items) or (
            parent is not None and items
        ):
            return self._private(node, env, items, parent)
        return Public(node, env)

    # --- FROM --------------------------------------------------------------------------------------

    def items(self, select: exp.Select, env: Env) -> list[tuple[str, Result, exp.Join | None, exp.Expression]]:
        clause = select.args.get("from_")
        sources: list[tuple[exp.Expression, exp.Join | None]] = [(clause.this, None)] if clause is not None else []
        sources += [(join.this, join) for join in select.args.get("joins") or []]
        found = []
        for source, join in sources:
            label, result = self._source(source, env)
            if any(label == other for other, _, _, _ in found):
                raise refused(
                    f"{label} is used twice", source, construct="FROM", remedy="give each table its own alias"
                )
            found.append((label, result, join, source))
        return found

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
            from service.sql.free import rename

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

    def _private(
        self,
        select: exp.Select,
        env: Env,
        items: list[tuple[str, Result, exp.Join | None, exp.Expression]],
        parent: RowScope | None,
    ) -> Result:
        scope = RowScope(parent=parent, semi=lambda node, outer: self._semi_join(node, outer, env))
        bound = [Item(label, self.rows(result, node), join, node) for label, result, join, node in items]
        if not bound:
            raise refused("a FROM clause is needed", select, construct="SELECT", remedy="name a table in FROM")
        where = select.args["where"].this if select.args.get("where") is not None else None
        relation = relate(bound, scope, where, self.context)
        known = {column for _, fields in scope.items for column in fields}
        form = shape(select, scope.items, known, scope.merged)
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
            self._no_tail(select)
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
        from service.sql.free import core_select

        return core_select(self, select, env, form, self._place(core), placed, scope)

    def _place(self, core: Core) -> int:
        """Equal cores are one: same question, same measures, one charge."""
        for index, other in enumerate(self.cores):
            if other.plan.digest == core.plan.digest and other.plan.measures == core.plan.measures:
                return index
        self.cores.append(core)
        return len(self.cores) - 1

    def _plain(self, select: exp.Select, form: Shape, scope: RowScope, relation) -> Rows:  # type: ignore[no-untyped-def]
        self._no_tail(select)
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

    def _no_tail(self, select: exp.Select) -> None:
        for key in ("limit", "offset", "qualify"):
            if select.args.get(key) is not None:
                raise refused(
                    f"{key.upper()} on private rows makes one person's row depend on others",
                    select.args[key],
                    construct=key.upper(),
                    remedy=f"aggregate first; {key.upper()} may follow on the groups",
                )

    # --- UNION ALL and semi-joins ------------------------------------------------------------------

    def _union(self, node: exp.Union, env: Env, parent: RowScope | None) -> Result:
        if parent is not None:
            raise refused("UNION can not stand here", node, construct="UNION", remedy="use two conditions with OR")
        sides = [self.query(part, env) for part in (node.this, node.expression)]
        if all(isinstance(side, Public) for side in sides):
            return Public(node, env)
        if any(isinstance(side, Released) for side in sides):
            from service.sql.free import outer_union

            return outer_union(self, node, env, sides)
        if node.args.get("distinct"):
            raise refused(
                "UNION drops equal rows of different people", node, construct="UNION", remedy="write UNION ALL"
            )
        for key in ("limit", "offset"):
            if node.args.get(key) is not None:
                raise refused(f"{key.upper()} on private rows", node, construct=key.upper(), remedy="aggregate first")
        left, right = (self.rows(side, node) for side in sides)
        return union_all(left, right, node, self.context)

    def _semi_join(self, node: exp.Expression, outer: RowScope, env: Env) -> Value:
        """unit IN (SELECT unit …) and EXISTS (… WHERE inner.unit = outer.unit): only the unit's own rows decide."""
        if isinstance(node, exp.In):
            return self._in(node, outer, env)
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        if not isinstance(inner, exp.Select) or inner.args.get("group") is not None or _aggregates(inner):
            raise refused(
                "EXISTS takes a plain SELECT",
                node,
                construct="EXISTS",
                remedy="write SELECT 1 FROM … WHERE inner.unit = outer.unit",
            )
        inside = with_ctes(inner, env, self.context)
        self._no_tail(inner)
        scope = RowScope(parent=outer, semi=lambda part, at: self._semi_join(part, at, inside))
        bound = [
            Item(label, self.rows(self._not_released(result, source), source), join, source)
            for label, result, join, source in self.items(inner, inside)
        ]
        where = inner.args["where"].this if inner.args.get("where") is not None else None
        relation = relate(bound, scope, where, self.context)
        parts = list(relation.where)
        if relation.unit is not None:
            if outer.unit is None or not _ties_units(where, scope, relation.aliases):
                raise not_on_unit(node)
            parts.append(binary(exp.EQ, relation.unit.copy(), outer.unit.copy()))
        chosen = replace(relation, where=tuple(parts)).select([aliased(exp.Literal(this="1", is_string=False), "one")])
        return replace(Value(exp.Exists(this=chosen), BOOLEAN), domain=(False, True))

    def _in(self, node: exp.In, outer: RowScope, env: Env) -> Value:
        value = Compiler(outer).value(node.this)
        query = node.args["query"]
        rows = self.rows(self._not_released(self.query(query, env), node), node)
        if len(rows.fields) != 1:
            raise refused("IN takes one column", node, construct="IN", remedy="select exactly one column")
        (member,) = rows.fields.values()
        relation = rows.relation
        if relation.unit is None:
            from service.sql.compare import comparable

            a, b = comparable(value, member.fresh(), node)
            chosen = relation.select([aliased(b.tree, "one")])
            return replace(
                derived(exp.In(this=a.tree, query=exp.Subquery(this=chosen)), BOOLEAN, value), domain=(False, True)
            )
        if outer.unit is None or not value.tokens & member.tokens:
            raise not_on_unit(node)
        if isinstance(node.parent, exp.Not) and UNIT not in value.tokens & member.tokens:
            raise refused(
                "NOT IN over a key that may be NULL",
                node,
                construct="NOT IN",
                remedy="write NOT EXISTS with an equality on the key",
            )
        same = [binary(exp.EQ, value.tree, member.tree.copy()), binary(exp.EQ, relation.unit.copy(), outer.unit.copy())]
        chosen = replace(relation, where=(*relation.where, *same)).select(
            [aliased(exp.Literal(this="1", is_string=False), "one")]
        )
        return replace(derived(exp.Exists(this=chosen), BOOLEAN, value), domain=(False, True))

    def _not_released(self, result: Result, node: exp.Expression) -> Result:
        if isinstance(result, Released):
            raise refused(
                "a subquery that drops the unit can not filter private rows",
                node,
                construct="subquery",
                remedy="ask for the aggregate in its own query and write its value as a literal, or keep the unit in the subquery",
            )
        return result


def _aggregates(select: exp.Select) -> bool:
    return any(next(iter(own_aggregates(part)), None) is not None for part in select.expressions)


def _ties_units(where: exp.Expression | None, scope: RowScope, inside: frozenset[str]) -> bool:
    """Is there an equality between a unit identity of the inner rows and one of the outer rows?"""
    compiler = Compiler(scope)
    for part in conjuncts(where):
        if not isinstance(part, exp.EQ):
            continue
        sides = [compiler.value(part.this), compiler.value(part.expression)]
        within = [bool(names := aliases_of(side.tree)) and names <= inside for side in sides]
        if within[0] != within[1] and sides[0].tokens & sides[1].tokens:
            return True
    return False
