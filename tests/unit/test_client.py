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


def test_an_answer_says_what_its_bounds_leave_out() -> None:
    words = "By the profile at most 12 rows of customers with more than 4 rows do not count."
    lossy = {**COLUMNS[1], "clipped_share": 0.02, "clipped": {"lost": [0, 12], "words": words}}
    whole = {**COLUMNS[1], "name": "m", "clipped_share": 0.0, "clipped": {"lost": [0, 0], "words": "nothing"}}
    unknown = {**COLUMNS[1], "name": "k", "clipped_share": None, "clipped": {"lost": None, "words": "not known"}}
    answer = Answer(
        {"columns": [lossy, whole, unknown], "rows": [[7, 8, 9]], "low_95": [[5] * 3], "high_95": [[9] * 3]}
    )
    assert answer.clipped_share == {"n": 0.02, "m": 0.0, "k": None}
    assert answer.clipped == {"n": words, "k": "not known"}
    assert str(answer).splitlines()[1:] == [f"n: {words}", "k: not known"]
    old = Answer({"columns": COLUMNS, "rows": [], "low_95": [], "high_95": []})
    assert (old.clipped_share["n"], old.clipped, str(old)) == (None, {}, "")
