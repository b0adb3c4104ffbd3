"""SQL handed to a child of the DuckDB engine as it is. Only tests of that engine look so deep; others ask for needs."""

from typing import Any

from service.core.boundary import KeyTable
from service.core.unsealing import unseal
from service.engine.base import Slot
from service.engine.duckdb.engine import DuckDBSlot
from service.engine.duckdb.scratch import ArrowResult
from service.engine.emit.spelling import Statement

SECONDS = 20.0
SLOW = (
    'SELECT count(*) AS n FROM "orders" a, "orders" b, "orders" c, "orders" d, "orders" e, "orders" f, "orders" g,'
    ' "orders" h, "orders" i, "orders" j, "orders" k, "orders" l, "orders" m, "orders" o, "orders" p, "orders" q,'
    ' "orders" r, "orders" s WHERE a."amount#" + b."amount#" + c."amount#" + d."amount#" + e."amount#" + f."amount#"'
    ' + g."amount#" + h."amount#" + i."amount#" + j."amount#" + k."amount#" + l."amount#" + m."amount#" + o."amount#"'
    ' + p."amount#" + q."amount#" + r."amount#" + s."amount#" = 77'
)


def column(slot: Slot, sql: str, keys: KeyTable | None = None) -> list[Any]:
    """The column n of a statement."""
    assert isinstance(slot, DuckDBSlot)
    statement = Statement(sql, ("n",), uses_keys=keys is not None)
    return unseal(slot._run(statement, keys, SECONDS))[0]["n"].tolist()


def rows(result: ArrowResult) -> list[tuple[Any, ...]]:
    """What the scratch engine answered, as Python tuples."""
    return list(zip(*(column.to_pylist() for column in result.values.columns), strict=True))
