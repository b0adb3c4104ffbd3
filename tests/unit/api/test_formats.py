"""Every form of an answer holds the same released values."""

import csv
import io
import json

import pyarrow as pa
import pytest

from service.api.formats import ARROW, CSV, JSON, first_accepted, flat, to_arrow, to_csv

ANSWER = json.dumps(
    {
        "columns": [
            {"name": "country", "type": "VARCHAR", "role": "key"},
            {"name": "day", "type": "DATE", "role": "key"},
            {"name": "n", "type": "BIGINT", "role": "value"},
            {"name": "mean", "type": "DOUBLE", "role": "value"},
        ],
        "rows": [["=cmd()", "2024-02-29", -5, 1.5], [None, None, 7, None]],
        "low_95": [[None, None, -10.5, 1.25], [None, None, 2, None]],
        "high_95": [[None, None, 0.5, 1.75], [None, None, 12, None]],
    }
).encode()


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("text/csv", CSV),
        ("text/*;q=0.5, application/vnd.apache.arrow.stream", ARROW),
        ("text/html, application/json;q=0.9, */*;q=0.1", JSON),
        ("image/png", None),
        ("text/csv;q=0", None),
        ("text/csv;q=nonsense", None),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str | None, chosen: str | None) -> None:
    assert first_accepted(accept) == chosen


def test_flat_rows_carry_their_intervals() -> None:
    first = json.loads(flat(ANSWER))[0]
    assert first == {
        "country": "=cmd()", "day": "2024-02-29", "n": -5, "n_low_95": -10.5, "n_high_95": 0.5,
        "mean": 1.5, "mean_low_95": 1.25, "mean_high_95": 1.75,
    }  # fmt: skip


def test_csv_disarms_formulas_but_keeps_negative_numbers() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(ANSWER).decode())))
    assert rows[1][0] == "'=cmd()"
    assert rows[1][2] == "-5"
    assert rows[2][0] == ""


def test_csv_of_no_rows_still_has_its_header() -> None:
    empty = json.dumps({**json.loads(ANSWER), "rows": [], "low_95": [], "high_95": []}).encode()
    assert to_csv(empty).decode().startswith("country,day,n,n_low_95,n_high_95,mean")


def test_arrow_is_typed_by_the_answer() -> None:
    table = pa.ipc.open_stream(to_arrow(ANSWER)).read_all()
    assert table.schema.field("day").type == pa.date32()
    assert table.schema.field("n").type == pa.int64()
    assert table.column("n").to_pylist() == [-5, 7]
    assert table.column("mean_low_95").to_pylist() == [1.25, None]


def clipped_answer() -> bytes:
    answer = json.loads(ANSWER)
    for column, share in zip(answer["columns"][2:], (0.125, None), strict=True):
        column |= {"clipped_share": share, "clipped": {"words": f"at most {share}"}}
    return json.dumps(answer).encode()


def test_what_bounds_leave_out_comes_last_so_that_places_stay() -> None:
    head, first, _ = csv.reader(io.StringIO(to_csv(clipped_answer()).decode()))
    assert head[: len(head) - 2] == next(csv.reader(io.StringIO(to_csv(ANSWER).decode())))
    assert head[-2:] == ["n_clipped_share", "mean_clipped_share"]
    assert first[-2:] == ["0.125", ""]
    assert json.loads(flat(clipped_answer()))[0]["n_clipped_share"] == 0.125


def test_arrow_has_it_as_a_column_and_in_words() -> None:
    table = pa.ipc.open_stream(to_arrow(clipped_answer())).read_all()
    assert table.column("n_clipped_share").to_pylist() == [0.125, 0.125]
    assert table.schema.field("n").metadata == {b"clipped": b"at most 0.125"}
    assert table.schema.field("n_low_95").metadata is None


def test_a_name_that_is_taken_gets_a_number() -> None:
    answer = json.loads(clipped_answer())
    answer["columns"][0]["name"] = "n_clipped_share"
    assert "n_clipped_share_2" in json.loads(flat(json.dumps(answer).encode()))[0]
