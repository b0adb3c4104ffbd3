"""The Python client's tables; what it does on the wire is tried on a running service (e2e/test_service.py)."""

import pyarrow as pa

from service.client import Answer

COLUMNS = [
    {"name": "day", "type": "DATE", "role": "key"},
    {"name": "n", "type": "BIGINT", "role": "value"},
    {"name": "last", "type": "TIMESTAMP", "role": "value"},
]
TYPES = {
    "day": pa.date32(), "n": pa.int64(), "n_low_95": pa.float64(), "n_high_95": pa.float64(),
    "last": pa.timestamp("us"), "last_low_95": pa.timestamp("us"), "last_high_95": pa.timestamp("us"),
}  # fmt: skip


def test_a_table_has_the_types_of_the_answer_also_without_rows() -> None:
    moment = "2024-01-31T12:00:00"
    full = {"rows": [["2024-01-31", 7, moment]], "low_95": [[None, 5, moment]], "high_95": [[None, 9.5, None]]}
    for body in (full, {"rows": [], "low_95": [], "high_95": []}):
        table = Answer({"columns": COLUMNS, **body}).to_arrow()
        assert {field.name: field.type for field in table.schema} == TYPES
        assert table.num_rows == len(body["rows"])
