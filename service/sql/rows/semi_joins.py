"""Semi-joins inside the core: IN and EXISTS, tied to the unit or over public tables.

Only the unit's own rows may decide about the unit's rows. So a subquery over private rows must be tied to the
outer rows by an equality that says "same unit"; we add unit = unit ourselves. An uncorrelated EXISTS over
private rows would let one person switch everyone's rows.
"""

from dataclasses import replace

from sqlglot import exp

from service.core.schema import BOOLEAN
from service.sql.expr.canonical import conjuncts
from service.sql.expr.comparisons import in_one_type
from service.sql.expr.compiler import Compiler
from service.sql.expr.trees import aliased, binary
from service.sql.expr.values import UNIT, Value, derived
from service.sql.read.aggregates import own_aggregates
from service.sql.refusals import refused
from service.sql.rows.bind import Env, FromItem, RowScope, relate, with_ctes
from service.sql.rows.joins import aliases_of, not_on_unit
from service.sql.rows.kinds import QueryWalk, Released, Result


def semi_join(walk: QueryWalk, node: exp.Expression, outer: RowScope, env: Env) -> Value:
    """The condition of unit IN (SELECT unit …) or EXISTS (… WHERE inner.unit = outer.unit): only own rows decide."""
    if isinstance(node, exp.In):
        return _in(walk, node, outer, env)
    inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    if not isinstance(inner, exp.Select) or inner.args.get("group") is not None or _aggregates(inner):
        raise refused(
            "EXISTS takes a plain SELECT",
            node,
            construct="EXISTS",
            remedy="write SELECT 1 FROM … WHERE inner.unit = outer.unit",
        )
    inside = with_ctes(inner, env, walk.context)
    no_tail(inner)
    scope = RowScope(parent=outer, semi=lambda part, at: semi_join(walk, part, at, inside))
    bound = [
        FromItem(label, walk.rows(_not_released(result, source), source), join, source)
        for label, result, join, source in walk.items(inner, inside)
    ]
    if not bound:
        raise refused("EXISTS needs a FROM clause", node, construct="EXISTS", remedy="name a table in FROM")
    where = inner.args["where"].this if inner.args.get("where") is not None else None
    relation = relate(bound, scope, where, walk.context)
    parts = list(relation.where)
    if relation.unit is not None:
        if outer.unit is None or not _ties_units(where, scope, relation.aliases):
            raise not_on_unit(node)
        parts.append(binary(exp.EQ, relation.unit.copy(), outer.unit.copy()))
    chosen = replace(relation, where=tuple(parts)).select([aliased(exp.Literal(this="1", is_string=False), "one")])
    return replace(Value(exp.Exists(this=chosen), BOOLEAN), domain=(False, True))


def _in(walk: QueryWalk, node: exp.In, outer: RowScope, env: Env) -> Value:
    value = Compiler(outer).value(node.this)
    query = node.args["query"]
    rows = walk.rows(_not_released(walk.query(query, env), node), node)
    if len(rows.fields) != 1:
        raise refused("IN takes one column", node, construct="IN", remedy="select exactly one column")
    (member,) = rows.fields.values()
    relation = rows.relation
    if relation.unit is None:
        a, b = in_one_type(value, member.fresh(), node)
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


def no_tail(select: exp.Select) -> None:
    """Refuses LIMIT, OFFSET and QUALIFY on private rows."""
    for key in ("limit", "offset", "qualify"):
        if select.args.get(key) is not None:
            raise refused(
                f"{key.upper()} on private rows makes one person's row depend on others",
                select.args[key],
                construct=key.upper(),
                remedy=f"aggregate first; {key.upper()} may follow on the groups",
            )


def _not_released(result: Result, node: exp.Expression) -> Result:
    if isinstance(result, Released):
        raise refused(
            "a subquery that drops the unit can not filter private rows",
            node,
            construct="subquery",
            remedy="keep the unit in the subquery, or ask for the aggregate in its own query and write it as a literal",
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
