"""The Plan of one private core: put together from its rows, keys and aggregate calls.

in   a private Relation, the bound GROUP BY expressions, the collected aggregates
out  core.plan.Plan, with names, bounds and digest that don't depend on the spelling of the question
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction

from sqlglot import exp

from service.core.errors import BoundsMissing
from service.core.plan import Aggregate, Bounds, Key, Plan, RowBound
from service.core.prepared import UNIT_COLUMN
from service.core.schema import GROUPS_PER_UNIT, ROWS_PER_UNIT, Scalar, SqlType
from service.sql.cores.measures import Call, Collector, Named, show_unit
from service.sql.expr.canonical import canonical_key, canonical_text, conjuncts
from service.sql.expr.lengths import text_bytes
from service.sql.expr.trees import aliased
from service.sql.expr.values import NULL, Value
from service.sql.read.output_names import sql_as_written
from service.sql.refusals import refused
from service.sql.rows.relations import Context, Relation

ROWS_PER_UNIT_MAX = 1 << 31
GROUPS_PER_UNIT_MAX = 1 << 20
FLOAT_DIGITS = 15  # so many decimal digits and a float name each other


@dataclass(frozen=True, slots=True)
class Grouping:
    """A GROUP BY expression: as written and as bound."""

    node: exp.Expression
    value: Value


@dataclass(frozen=True, slots=True)
class Core:
    """A Plan with the way back: which key or aggregate of the query is which column of it."""

    plan: Plan
    keys: Mapping[str, str]  # canonical text of the expression to k*
    calls: Mapping[Call, str]


def build(relation: Relation, groups: list[Grouping], calls: Collector, context: Context) -> Core:
    """One core: names in canonical order, bounds settled, a digest that names the question."""
    for group in groups:
        _check_key(group)
    ordered = sorted({canonical_text(group.value.tree): group for group in groups}.items())
    names = {key: f"k{i}" for i, (key, _) in enumerate(ordered)}
    named, columns = calls.finish()
    keys = tuple(_key(names[key], group, relation) for key, group in ordered)
    unit = relation.unit
    assert unit is not None
    outputs: list[exp.Expression] = [aliased(unit.copy(), UNIT_COLUMN)]
    outputs += [aliased(canonical_key(group.value), names[key]) for key, group in ordered]
    outputs += [aliased(tree, label) for label, tree in named.trees.items()]
    chosen = relation.select(outputs)
    plan = Plan(
        rows=chosen,
        row_bound=relation.bound,
        keys=keys,
        measures=named.measures,
        attributes=named.attributes,
        aggregates=named.aggregates,
        bounds=_bounds(relation.bound, named, context),
        digest=_digest(relation, keys, [key for key, _ in ordered], columns, context),
        expected_rows=relation.expected,
        expected_groups=context.schema.defaults.expected_groups,
        tables={found.name: context.schema.tables[found.name] for found in chosen.find_all(exp.Table)},
        reach=relation.reach,
        whole_table=isinstance(relation.source, exp.Table) and not relation.joins and not relation.where,
        clamped_totals=relation.clamped_totals,
    )
    return Core(plan, names, columns)


def _check_key(group: Grouping) -> None:
    if group.value.reads_unit:
        raise show_unit(group.node)
    if group.value.type is NULL:
        raise refused(
            "a key can not be NULL", group.node, construct="GROUP BY", remedy="group by a column or an expression"
        )


def _key(label: str, group: Grouping, relation: Relation) -> Key:
    value = group.value
    domain = of_type(declared_domain(value, relation), value.type)
    public = value.public if domain is None else None
    return Key(label, value.type, value.source or sql_as_written(group.node), domain, public, text_bytes(value))


def declared_domain(value: Value, relation: Relation) -> tuple[Scalar, ...] | None:
    """The catalog's domain, narrowed (or replaced, where there is none) by conjuncts `key IN (…)`, `key = …`."""
    domain = value.domain
    wanted = canonical_text(value.tree)
    for part in (piece for condition in relation.where for piece in conjuncts(condition)):
        listed = _listed(part, wanted)
        if listed is None:
            continue
        if domain is None:
            domain = tuple(sorted(dict.fromkeys(listed), key=lambda item: (type(item).__name__, item)))
        else:
            domain = tuple(item for item in domain if item in listed)
    return domain


def of_type(domain: tuple[Scalar, ...] | None, kind: SqlType) -> tuple[Scalar, ...] | None:
    """The members that a column of this type can hold, once each as the engine compares them.

    Two members that become one value would count a person's rows twice (1 and 1.4 as BIGINT), and one member
    that stands for two values would make the statement's shape depend on rows. A decimal of more than 15
    digits has no float of its own, so it is no declared key.
    """
    if domain is None or (kind.name == "DECIMAL" and (kind.precision or 38) > FLOAT_DIGITS):
        return None
    if kind.name in ("DATE", "TIMESTAMP"):
        return _moments(domain, kind)
    if kind.name == "DOUBLE":
        return tuple(dict.fromkeys(None if item is None else float(item) + 0.0 for item in domain))  # type: ignore[arg-type]
    if not kind.is_numeric:
        return domain
    grid = 10 ** (kind.scale or 0)
    kept: dict[Scalar, None] = {}
    for item in domain:
        if item is None:
            kept[None] = None
            continue
        exact = Fraction(str(item)) * grid
        if exact.denominator == 1 and abs(exact) < 1 << 63:
            kept[int(exact) if grid == 1 else float(item)] = None  # type: ignore[arg-type]
    return tuple(kept)


def _moments(domain: tuple[Scalar, ...], kind: SqlType) -> tuple[Scalar, ...]:
    """Days as days, moments as moments: a day beside a moment in one column would be read as the same day twice."""
    kept: dict[Scalar, None] = {}
    for item in domain:
        if isinstance(item, date):
            day = datetime(item.year, item.month, item.day)
            moment = item if isinstance(item, datetime) else day
            if kind.name == "TIMESTAMP" or moment == day:
                kept[moment if kind.name == "TIMESTAMP" else day.date()] = None
        else:
            kept[item] = None
    return tuple(kept)


def _listed(part: exp.Expression, wanted: str) -> list[Scalar] | None:
    if isinstance(part, exp.In) and part.expressions and canonical_text(part.this) == wanted:
        values = [literal_of(item) for item in part.expressions]
    elif isinstance(part, exp.EQ) and canonical_text(part.this) == wanted:
        values = [literal_of(part.expression)]
    elif isinstance(part, exp.EQ) and canonical_text(part.expression) == wanted:
        values = [literal_of(part.this)]
    else:
        return None
    return None if any(value is None for value in values) else values


def literal_of(tree: exp.Expression) -> Scalar:
    """The value of a literal of ours; None for anything else."""
    if isinstance(tree, exp.Paren):
        return literal_of(tree.this)
    if isinstance(tree, exp.Neg):
        inner = literal_of(tree.this)
        return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else None
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Literal):
        if tree.is_string:
            return str(tree.this)
        exact = Fraction(str(tree.this))
        return int(exact) if exact.denominator == 1 else float(exact)
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):
        kind = tree.args["to"].this
        if kind == exp.DataType.Type.DATE:
            return date.fromisoformat(str(tree.this.this))
        if kind in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ):
            return datetime.fromisoformat(str(tree.this.this))
        if kind == exp.DataType.Type.DOUBLE:
            return float(tree.this.this)
    return None


def _bounds(bound: RowBound | None, named: Named, context: Context) -> Bounds:
    asked, defaults = context.ask.bounds, context.schema.defaults
    rows = _within(
        "rows_per_unit", _given(asked.rows_per_unit, defaults.rows_per_unit or ROWS_PER_UNIT), ROWS_PER_UNIT_MAX
    )
    if bound is not None and not bound.tables:
        rows = min(rows, max(1, bound.constant))
    return Bounds(
        rows_per_unit=rows,
        groups_per_unit=_within(
            "groups_per_unit",
            _given(asked.groups_per_unit, defaults.groups_per_unit or GROUPS_PER_UNIT),
            GROUPS_PER_UNIT_MAX,
        ),
        clip=asked.clip or "l1",
        unit_sum=_unit_sums(named, context),
        min_units=_within("min_units", _given(context.ask.min_units, defaults.min_units), 1 << 31),
        slots=asked.slots or "pairs",
    )


def _given(asked: int | None, default: int) -> int:
    return default if asked is None else asked


def _within(label: str, value: int, largest: int) -> int:
    if not 1 <= value <= largest:
        raise BoundsMissing(f"{label} must be from 1 to {largest}", {"field": label, "remedy": f"give 1 to {largest}"})
    return value


def _unit_sums(named: Named, context: Context) -> dict[str, Fraction | None]:
    """`unit_sum` of "table.column" belongs to the measure that sums exactly that column."""
    summed = {item.argument for item in named.aggregates if item.function.additive}
    found: dict[str, Fraction | None] = {}
    for key, cap in context.ask.bounds.unit_sum.items():
        if cap is not None and cap <= 0:
            raise BoundsMissing(
                f"the unit_sum of {key} must be above zero", {"field": "unit_sum", "remedy": "give a positive cap"}
            )
        for label, argument in named.sources.items():
            if label in summed and argument.value is not None and argument.value.source == key:
                found[label] = cap
                context.known_bounds.add(f"sum {key}")
    return found


def _digest(
    relation: Relation, keys: tuple[Key, ...], texts: list[str], calls: Mapping[Call, str], context: Context
) -> str:
    """A name for the question: tables, conditions, keys and calls; not bounds, price, order or spelling."""
    parts = [
        context.schema.dataset,
        canonical_text(relation.source),
        ";".join(canonical_text(part) for part in relation.joins),
        ";".join(sorted({canonical_text(part) for part in relation.where})),
        ";".join(f"{key}|{item.type}|{item.domain}|{item.public}" for key, item in zip(texts, keys, strict=True)),
        ";".join(sorted(f"{call.function.name}|{call.argument}|{call.p}" for call in calls)),
    ]
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()


def column_type(plan: Plan, label: str) -> Aggregate | Key:
    """The key or aggregate behind a released column."""
    known: list[Aggregate | Key] = [*plan.keys, *plan.aggregates]
    return next(item for item in known if item.name == label)
