"""The front end as one function: from a request's text to a Query, or to a refusal that says what to write instead.

parse (limits, sqlglot) → allow (every node and argument) → split (bind, join, group; cores and outer SQL)
→ plan (one Plan per core) → Query. Pure: no file, no clock, no data; the schema is all it knows.
"""

from sqlglot import exp

from service.core.errors import BoundsMissing, ConstructRefused
from service.core.plan import Outer, Query
from service.core.request import Ask
from service.core.schema import Schema
from service.sql.expr import arithmetic, casts, conditions, dates, numbers, texts  # noqa: F401  (their entries register themselves)
from service.sql.outer.translate import as_output
from service.sql.read.allow import OUTER, ROWS, check, unlisted
from service.sql.read.parse import parse
from service.sql.refusals import refused
from service.sql.rows.kinds import Public, Released
from service.sql.rows.relations import Context
from service.sql.split import Splitter


def understand(ask: Ask, schema: Schema) -> Query:
    """The Query of a request to a dataset as it is declared. Raises SyntaxRefused, ConstructRefused, BoundsMissing."""
    try:
        tree = parse(ask.sql, ask.dialect)
        check(tree)
        return _understood(tree, ask, schema)
    except RecursionError:
        raise ConstructRefused(
            "the query is nested too deeply",
            {"construct": "nesting", "remedy": "name the inner parts in a WITH clause or simplify them"},
        ) from None


def _understood(tree: exp.Expression, ask: Ask, schema: Schema) -> Query:
    context = Context(schema, ask)
    splitter = Splitter(context, tree)
    result = splitter.query(tree, {})
    if isinstance(result, Public):
        raise refused("no private table is read", tree, construct="SELECT", remedy="read at least one private table")
    if not isinstance(result, Released):
        raise refused(
            "private rows are never returned, only aggregates of them",
            tree,
            construct="SELECT",
            remedy="aggregate: SELECT key, COUNT(*) … GROUP BY key",
        )
    _check_bounds(context)
    row_wise = result.core is not None and len(splitter.cores) == 1
    outer = Outer(
        result.tree(positioned=row_wise),
        tuple(as_output(label, made, row_wise=row_wise) for label, made in result.columns.items()),
        row_wise,
        tuple(sorted(result.tables)),
    )
    assert not unlisted(outer.select, OUTER), "the outer SQL holds only listed nodes"
    for core in splitter.cores:
        assert not unlisted(core.plan.rows, ROWS), "engine SQL holds only listed nodes"
    return Query(schema.dataset, tuple(core.plan for core in splitter.cores), outer, tuple(context.notes))


def _check_bounds(context: Context) -> None:
    """A bound for something that the query doesn't read is a slip worth telling."""
    asked = context.ask.bounds
    for key in asked.columns:
        if key not in context.known_bounds:
            raise BoundsMissing(
                f"bounds are given for {key[:80]}, which this query does not read",
                {"field": "bounds.columns", "remedy": 'name columns as "table.column"'},
            )
    for key in asked.unit_sum:
        if f"sum {key}" not in context.known_bounds:
            raise BoundsMissing(
                f"unit_sum is given for {key[:80]}, but no SUM is taken of exactly that column",
                {"field": "bounds.unit_sum", "remedy": 'name a column that is summed as "table.column"'},
            )
