"""Joins inside the core: several relations become one, each row of it still with one unit.

in   FROM items with their join conditions, and the conjuncts of WHERE
out  one Relation: private parts equated on the hidden unit code, inner conditions moved into WHERE

Why: a row must belong to exactly one unit (Invariant P2). Two private relations join only where the
analyst wrote an equality that says "same unit": on the unit itself, or on a verified unique key through
which the unit is reached. We then add unit = unit ourselves, so the invariant doesn't rest on recognising
it. Bounding happens after all joins, so fan-out can't raise the sensitivity; `bound` only says what may
be known of it beforehand.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.plan import RowBound
from service.core.reach import Reach
from service.sql.expr.canonical import all_of, canonical_text
from service.sql.expr.trees import binary
from service.sql.expr.values import UNIT, Value
from service.sql.refusals import refused
from service.sql.rows.relations import Relation

CROSSED_MAX = 2


@dataclass(frozen=True, slots=True)
class Equality:
    """An equality among the conjuncts: which relations it touches and what their columns are."""

    left: Value
    right: Value
    left_aliases: frozenset[str]
    right_aliases: frozenset[str]

    def between(self, a: frozenset[str], b: frozenset[str]) -> tuple[Value, Value] | None:
        """The side within `a` and the side within `b`, if it links the two."""
        if self.left_aliases and self.right_aliases:
            if self.left_aliases <= a and self.right_aliases <= b:
                return self.left, self.right
            if self.right_aliases <= a and self.left_aliases <= b:
                return self.right, self.left
        return None


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """A LEFT JOIN: the null-extended relation and its ON."""

    relation: Relation
    on: tuple[exp.Expression, ...]
    equalities: tuple[Equality, ...]
    node: exp.Expression


def aliases_of(tree: exp.Expression) -> frozenset[str]:
    """The relations that an expression reads."""
    return frozenset(column.text("table") for column in tree.find_all(exp.Column))


def join(
    steps: list[Relation | LeftJoin], where: list[exp.Expression], equalities: list[Equality], node: exp.Expression
) -> Relation:
    """One relation of all items, in the analyst's order. `where` holds the inner conditions and WHERE."""
    inner = [step for step in steps if isinstance(step, Relation)]
    _check_linked([part for part in inner if part.private], equalities, node)
    state = _inner_bound(inner, equalities)
    first = inner[0]
    joins = list(first.joins)
    conditions = list(where) + [part for step in inner for part in step.where]
    unit = first.unit
    aliases = first.aliases
    for step in steps[1:]:
        if isinstance(step, LeftJoin):
            state = _left(state, step, aliases, unit)
            joins.append(_left_join(step, unit))
            aliases |= step.relation.aliases
            continue
        on = None
        if unit is not None and step.unit is not None:
            on = binary(exp.EQ, unit.copy(), step.unit.copy())
        joins.append(exp.Join(this=step.source, on=on) if on is not None else exp.Join(this=step.source, kind="CROSS"))
        joins += step.joins
        unit = unit if unit is not None else step.unit
        aliases |= step.aliases
    _check_crossed(state, node)
    bare = first.bare and len(steps) == 1 and not conditions
    return replace(
        state, source=first.source, joins=tuple(joins), where=tuple(conditions), unit=unit, aliases=aliases, bare=bare
    )


def _left_join(step: LeftJoin, unit: exp.Column | None) -> exp.Join:
    conditions = list(step.on)
    if step.relation.unit is not None:
        assert unit is not None
        conditions.append(binary(exp.EQ, unit.copy(), step.relation.unit.copy()))
    return exp.Join(this=step.relation.source, side="LEFT", on=all_of(conditions) or exp.Boolean(this=True))


def _check_linked(parts: list[Relation], equalities: list[Equality], node: exp.Expression) -> None:
    """Every private relation must be tied to the others by "same unit" equalities."""
    if len(parts) < 2:
        return
    linked = [parts[0]]
    waiting = parts[1:]
    while waiting:
        for part in waiting:
            if any(_same_unit(equality, other, part) for equality in equalities for other in linked):
                linked.append(part)
                waiting.remove(part)
                break
        else:
            raise not_on_unit(node)


def _check_crossed(state: Relation, node: exp.Expression) -> None:
    """One person's thousand rows, crossed twice, are a billion: their presence would show in the time."""
    if state.crossed > CROSSED_MAX:
        raise refused(
            f"this multiplies {state.crossed} sets of one unit's rows with each other",
            node,
            construct="JOIN",
            remedy=f"join at most {CROSSED_MAX} private tables that hold several rows of a unit, and aggregate the"
            " others per unit first (… GROUP BY unit)",
        )


def not_on_unit(node: exp.Expression) -> ConstructRefused:
    """The refusal of a join of private rows that is not on the unit."""
    return refused(
        "private tables are joined on something other than the unit",
        node,
        construct="JOIN",
        remedy="add an equality of the two unit columns (the dataset's page names each table's `unit`), or of the"
        " declared foreign key to the unit, to the condition; a semi-join is unit IN (SELECT unit …)",
    )


def _same_unit(equality: Equality, a: Relation, b: Relation) -> bool:
    found = equality.between(a.aliases, b.aliases)
    return found is not None and bool(found[0].tokens & found[1].tokens)


def _inner_bound(parts: list[Relation], equalities: list[Equality]) -> Relation:
    """The best row bound over the choices of where to start; order doesn't change the rows."""
    starts = [part for part in parts if part.private] or parts
    best: Relation | None = None
    for start in starts:
        state = _grow(start, [part for part in parts if part is not start], equalities)
        if best is None or (state.bound is None, state.crossed) < (best.bound is None, best.crossed):
            best = state
    assert best is not None
    return best


def _grow(state: Relation, waiting: list[Relation], equalities: list[Equality]) -> Relation:
    waiting = list(waiting)
    while waiting:
        ranked = [(_fit(state, part, equalities), part) for part in waiting]
        fit, part = min(ranked, key=lambda pair: pair[0])
        reach = _met(state, part, fit, equalities)
        clamped = state.clamped_totals or part.clamped_totals
        state = replace(_joined(state, part, fit), reach=reach, public=None, clamped_totals=clamped)
        waiting.remove(part)
    return state


def _fit(state: Relation, part: Relation, equalities: list[Equality]) -> int:
    """0: unique on both sides. 1: a row of state meets at most one of part. 2: the other way round. 3, 4: neither."""
    links = [found for equality in equalities if (found := equality.between(state.aliases, part.aliases)) is not None]
    right = any(_unique(part, b) for _, b in links)
    left = any(_unique(state, a) for a, _ in links)
    if left and right:
        return 0
    if right:
        return 1
    if left and part.private:
        return 2
    return 3 if links else 4


def _unique(relation: Relation, value: Value) -> bool:
    return canonical_text(value.tree) in relation.unique or (relation.one_row and UNIT in value.tokens)


def _joined(state: Relation, part: Relation, fit: int) -> Relation:
    aliases = state.aliases | part.aliases
    unit = state.unit if state.unit is not None else part.unit
    expected = max((x for x in (state.expected, part.expected) if x is not None), default=None)
    crossed = state.crossed
    if fit == 0:
        bound, unique, one_row = state.bound or part.bound, state.unique | part.unique, state.one_row or part.one_row
        crossed = min(state.crossed, part.crossed) if state.private and part.private else max(crossed, part.crossed)
    elif fit == 1:
        bound, unique, one_row = state.bound, state.unique, state.one_row
        expected = state.expected
    elif fit == 2:
        bound, unique, one_row = part.bound, part.unique, part.one_row
        expected, crossed = part.expected, part.crossed
    else:
        crossed += part.crossed
        bound, unique, one_row = None, frozenset[str](), False
        if state.private and part.private and state.one_row and part.bound is not None:
            bound = part.bound  # the unit's one row meets each of its other rows at most once
        elif state.private and part.private and part.one_row:
            bound = state.bound
    merged = replace(state, aliases=aliases, unit=unit, bound=bound, unique=unique, one_row=one_row)
    return replace(merged, expected=expected, crossed=crossed)


def _met(state: Relation, part: Relation, fit: int, equalities: list[Equality]) -> Reach | None:
    """Rows of one unit after joining `part`, by public sizes."""
    if not part.private or not state.private:
        times = 1 if fit in (0, 1) else _fan_out(state, part, equalities)
        return None if state.reach is None or times is None else state.reach.repeated(times)
    if fit in (0, 1) or part.one_row:
        return state.reach
    if fit == 2 or state.one_row:
        return part.reach
    return None if state.reach is None or part.reach is None else state.reach.crossed(part.reach)


def _fan_out(state: Relation, part: Relation, equalities: Iterable[Equality]) -> int | None:
    """How many rows of a public table one row can meet: those of its most frequent value, or all of them."""
    size = part.public
    if size is None:
        return None
    links = [found for equality in equalities if (found := equality.between(state.aliases, part.aliases)) is not None]
    columns = [b.public[1] for _, b in links if b.public is not None]
    return max(
        1, min([size.rows, *(size.most_of_one_value[name] for name in columns if name in size.most_of_one_value)])
    )


def _left(state: Relation, step: LeftJoin, aliases: frozenset[str], unit: exp.Column | None) -> Relation:
    """LEFT JOIN: the left side is preserved, so it must be the private one."""
    part = step.relation
    if part.private and unit is None:
        raise refused(
            "a private table on the null side of a join makes rows that belong to nobody",
            step.node,
            construct="LEFT JOIN",
            remedy="put the private table on the preserved side, or use an inner join",
        )
    links = [found for equality in step.equalities if (found := equality.between(aliases, part.aliases)) is not None]
    if part.private and not any(a.tokens & b.tokens for a, b in links):
        raise not_on_unit(step.node)
    clamped = state.clamped_totals or part.clamped_totals
    if any(_unique(part, b) for _, b in links):
        return replace(state, aliases=state.aliases | part.aliases, public=None, clamped_totals=clamped)
    bound: RowBound | None = None
    if state.bound is not None and part.bound is not None and any(_unique(state, a) for a, _ in links):
        bound = RowBound(state.bound.constant + part.bound.constant, state.bound.tables + part.bound.tables)
    crossed = state.crossed + part.crossed
    merged = replace(state, aliases=state.aliases | part.aliases, bound=bound, unique=frozenset(), one_row=False)
    return replace(merged, crossed=crossed, reach=_left_reach(state, step), public=None, clamped_totals=clamped)


def _left_reach(state: Relation, step: LeftJoin) -> Reach | None:
    """Every row of the left side is kept, alone where it meets nothing."""
    part = step.relation
    if not part.private:
        times = _fan_out(state, part, step.equalities)
        return None if state.reach is None or times is None else state.reach.repeated(times)
    if state.reach is None or part.reach is None:
        return None
    met = state.reach.crossed(part.reach)
    if met is None or state.reach.table is not None:
        return met  # the most rows of a table are at least one, so a row that meets nothing is in it
    return met.beside(Reach(None, constant=state.reach.constant))
