"""The database's clock: times in the journal must not depend on which process wrote them."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class utc_now(FunctionElement[str]):  # reads as a SQL function
    """UTC now as text, `2026-11-16T09:30:00.123Z`: sorts by time, the same on both stores."""

    type = sa.Text()
    inherit_cache = True


@compiles(utc_now, "sqlite")
def _sqlite(_element: utc_now, _compiler: Any, **_: Any) -> str:
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@compiles(utc_now, "postgresql")
def _postgresql(_element: utc_now, _compiler: Any, **_: Any) -> str:
    return """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
