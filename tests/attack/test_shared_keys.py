"""A key that is declared unique and that two people hold: the import refuses it, whichever rows it would cut.

If it passed, what hangs on the row that was cut would count as the other person's, and who leaves would move more than
one person's rows. Whether it passed was once a matter of chance: keys were compared after the cut.
"""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.core.schema import BIGINT, Column, Table, UnitColumn, UnitVia
from service.core.schema_codec import table_to_json
from service.engine.duckdb.importing import verifying
from service.engine.duckdb.importing.build import Build, open_database
from service.engine.duckdb.importing.reading import ImportRefused
from service.engine.duckdb.prepared_file import BUILT

ORDERS = Table(
    "orders", {"order_id": Column("order_id", BIGINT, unique=True), "person": Column("person", BIGINT)},
    UnitColumn("person"), max_rows_per_unit=3,
)  # fmt: skip
LINES = Table(
    "lines", {"order_id": Column("order_id", BIGINT), "line": Column("line", BIGINT, unique=True)},
    UnitVia("order_id", "orders", "order_id"),
)  # fmt: skip
SHARED = 7
TIMES = 12


def prepared(table: Table, columns: dict[str, list[int | None]], folder: Path, parent: Path | None = None) -> Path:
    """The prepared file of one table, as an import child builds it."""
    folder.mkdir()
    pq.write_table(pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), folder / "in.pq")
    job: dict[str, Any] = {
        "do": "build", "kind": "parquet", "files": [str(folder / "in.pq")], "source_table": None,
        "table": table_to_json(table), "folder": str(folder), "units_in": None, "parent": parent and str(parent),
    }  # fmt: skip
    here, there = socket.socketpair()
    with open_database({"memory_bytes": 2**28, "threads": 1}, job) as connection, here, there:
        Build(connection, job, here, 2**28).run()
    return folder / "rows.duckdb"


def orders_of_two(shared: int = SHARED) -> dict[str, list[int | None]]:
    """Fifty orders each; the first of either person has the same number."""
    mine, yours = [shared, *range(100, 149)], [shared, *range(200, 249)]
    return {"order_id": [*mine, *yours], "person": [1] * 50 + [2] * 50}


def passes(folder: Path) -> int:
    """How often of some times the shared key is let through."""
    found = 0
    for at in range(TIMES):
        try:
            prepared(ORDERS, orders_of_two(), folder / str(at))
            found += 1
        except ImportRefused:
            continue
    return found


def test_a_key_that_two_people_hold_is_refused_every_time(tmp_path: Path) -> None:
    assert passes(tmp_path) == 0


def test_a_twin_that_compares_what_is_left_after_the_cut_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_the_cut(table: Table, column: Column) -> str:
        return f'SELECT 1 FROM {BUILT} WHERE "{column.name}" IS NOT NULL GROUP BY "{column.name}" HAVING count(*) > 1'

    monkeypatch.setattr(verifying, "doubles", after_the_cut)
    assert passes(tmp_path) > 0


def test_a_cut_of_the_parent_does_not_hide_what_two_of_its_people_share(tmp_path: Path) -> None:
    """Lines of orders that were cut name somebody still: their keys count."""
    orders = {"order_id": [*range(100, 150), *range(200, 250)], "person": [1] * 50 + [2] * 50}
    parent = prepared(ORDERS, orders, tmp_path / "orders")
    lines = {"order_id": [*range(100, 150), *range(200, 250)], "line": [*range(50), *range(50)]}
    with pytest.raises(ImportRefused):
        prepared(LINES, lines, tmp_path / "lines", parent)


def test_rows_of_nobody_and_missing_keys_share_with_nobody(tmp_path: Path) -> None:
    missing = {"order_id": [None, None, 1, 1], "person": [1, 2, 1, None]}
    prepared(ORDERS, missing, tmp_path / "missing")
    public = replace(ORDERS, unit=None, max_rows_per_unit=None)
    with pytest.raises(ImportRefused):
        prepared(public, missing, tmp_path / "public")
