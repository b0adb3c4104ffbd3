"""What makes two questions comparable: the same rows and keys (a frame), the same measures.

A release is stored under its frame and the versions of the tables that it reads (service/core/versions.py). A later
question on the same frame and versions can be derived from it when every measure and attribute that it needs is among
the stored ones, whatever its aliases, projection, HAVING or ORDER BY.
"""

import hashlib
import json

from sqlglot import exp

from service.core.plan import Attribute, Measure, Plan, Query
from service.core.prepared import UNIT_COLUMN
from service.sql.expr.canonical import canonical_text


def frame(plan: Plan) -> str:
    """Digest of rows and keys without measures and attributes."""
    kept = {UNIT_COLUMN, *(key.name for key in plan.keys)}
    selected = [canonical_text(column) for column in plan.rows.expressions if column.alias_or_name in kept]
    rest = [
        [name, canonical_text(part)] for name, part in sorted(plan.rows.args.items()) if part and name != "expressions"
    ]
    keys = [[key.name, str(key.type), repr(key.domain), repr(key.public)] for key in plan.keys]
    return _digest([selected, rest, keys])


def core_tables(plan: Plan) -> frozenset[str]:
    """The tables that a core is computed from: its rows, and public keys."""
    rows = {table.name for table in plan.rows.find_all(exp.Table)}
    return frozenset(rows | {key.public[0] for key in plan.keys if key.public is not None})


def all_tables(query: Query) -> frozenset[str]:
    """Those of every core, and public ones that the outer SQL reads."""
    return frozenset(query.outer.public_tables).union(*(core_tables(plan) for plan in query.cores))


def identity(plan: Plan, argument: Measure | Attribute) -> str:
    """Digest of one measure or attribute: its expression, its grid and its range."""
    column = next(column for column in plan.rows.expressions if column.alias_or_name == argument.name)
    body = column.this if isinstance(column, exp.Alias) else column
    if isinstance(argument, Measure):
        return _digest([canonical_text(body), str(argument.step), argument.low, argument.high, argument.auto])
    return _digest([canonical_text(body), repr(argument.domain)])


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True, default=str).encode()).hexdigest()
