"""What an import asks a child to count and to cut (importing/counting.py does it)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from service.core.boundary import ExactTable
from service.core.schema import Table
from service.core.schema_codec import table_to_json
from service.engine.import_base import Counting

RunJob = Callable[[dict[str, Any]], dict[str, Any]]
NO_SOURCE: dict[str, Any] = {"kind": "", "files": []}


def count_units(run: RunJob, work: Path, prepared: Path) -> ExactTable:
    """The units of a prepared file by their rows. Sealed here, before anything can look at them."""
    answer = run({"do": "count", "folder": str(work), "prepared": str(prepared), **NO_SOURCE})
    return ExactTable({"units": np.array(answer["units"], dtype=np.int64)})


def cut_when_counted(
    run: RunJob, built: dict[str, Any], work: Path, table: Table, profiled: Callable[[Counting], int | None]
) -> dict[str, Any]:
    """A built table without the rows that are too many, once `profiled` has decided how many of a unit it keeps;
    `most` of what comes back says how many."""
    most = profiled(lambda: count_units(run, work, work / "rows.duckdb"))
    if most is None:
        return {**built, "most": None}
    cut = run({"do": "cut", "folder": str(work), "table": table_to_json(table), "most": most, **NO_SOURCE})
    return {**built, "rows": cut["rows"], "warnings": [*built["warnings"], *cut["warnings"]], "most": most}
