"""One stored answer in the form the caller asks for: JSON as stored, flat JSON, CSV or Arrow.

All forms are made from the stored bytes, so they hold the same released values. CSV is safe to open in
a spreadsheet: text that would start a formula gets a leading apostrophe. A form that nobody offers is
refused before anything is asked or charged (docs/decisions/0022).
"""

import csv
import io
import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from service.core.errors import NotAcceptable

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
OFFERED = (JSON, CSV, ARROW)

CLIPPED = "clipped_share"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


BY_NAME = {"json": JSON, "flat": JSON, "csv": CSV, "arrow": ARROW}


def agreed_media_type(form: str | None, accept: str | None) -> str:
    """The media type that `format` names, else one that the Accept header takes; NotAcceptable without one."""
    media_type = BY_NAME[form] if form else first_accepted(accept)
    if media_type is None:
        raise NotAcceptable(
            f"answers come as {', '.join(OFFERED)}", {"remedy": "accept one of these, or leave Accept out"}
        )
    return media_type


def formed(body: bytes, form: str | None, media_type: str) -> bytes:
    """The stored bytes in that form."""
    if media_type == CSV:
        return to_csv(body)
    if media_type == ARROW:
        return to_arrow(body)
    return flat(body) if form == "flat" else body


def first_accepted(accept: str | None) -> str | None:
    """The first offered media type that the Accept header takes, by its q values; None: nothing fits."""
    if accept is None or not accept.strip():
        return JSON
    ranked: list[tuple[float, int, str]] = []
    for place, part in enumerate(accept.split(",")):
        pieces = [piece.strip() for piece in part.split(";")]
        quality = _quality(pieces[1:])
        if quality > 0:
            ranked.append((-quality, place, pieces[0].lower()))
    for _, _, wanted in sorted(ranked):
        for offered in OFFERED:
            if wanted in ("*/*", offered) or wanted == offered.split("/")[0] + "/*":
                return offered
    return None


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:]) if parameter.isascii() else 0.0
            except ValueError:
                return 0.0
    return 1.0


def flat(body: bytes) -> bytes:
    """A list of objects: what Grafana's JSON data sources and most scripts like best."""
    return json.dumps(flat_rows(json.loads(body)), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def flat_columns(answer: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """(name, which list of the answer, column): each value with its interval beside it, no name twice; at the end, per
    value, the share that its bounds leave out."""
    found: list[tuple[str, str, int]] = []
    taken: set[str] = set()
    for at, column in enumerate(answer["columns"]):
        sides = ("rows", "low_95", "high_95") if column["role"] == "value" else ("rows",)
        for side in sides:
            wanted = column["name"] if side == "rows" else f"{column['name']}_{side}"
            found.append((_free(wanted, taken), side, at))
    for at, column in enumerate(answer["columns"]):
        if CLIPPED in column:  # after all others, so that what is read by place stays where it was
            found.append((_free(f"{column['name']}_{CLIPPED}", taken), CLIPPED, at))
    return found


def _free(wanted: str, taken: set[str]) -> str:
    """A name that no other column has."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _cell(answer: Mapping[str, Any], side: str, row: int, at: int) -> Any:
    """What the bounds leave out is one figure for a column; all else is a cell."""
    return answer["columns"][at][CLIPPED] if side == CLIPPED else answer[side][row][at]


def flat_names(answer: Mapping[str, Any]) -> list[str]:
    return [name for name, _, _ in flat_columns(answer)]


def flat_rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = flat_columns(answer)
    return [{name: _cell(answer, side, row, at) for name, side, at in columns} for row in range(len(answer["rows"]))]


def to_csv(body: bytes) -> bytes:
    """The flat rows as CSV with a header line; dates and text quoted where needed."""
    answer = json.loads(body)
    return csv_of(flat_rows(answer), flat_names(answer))


def csv_of(rows: list[dict[str, Any]], names: list[str]) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow([_safe(name) for name in names])
    for row in rows:
        writer.writerow([_safe(row.get(name)) for name in names])
    return sink.getvalue().encode()


def to_arrow(body: bytes) -> bytes:
    """The flat rows as one Arrow stream, typed by the answer's column types."""
    answer = json.loads(body)
    rows = flat_rows(answer)
    fields = []
    for name, side, at in flat_columns(answer):
        declared = answer["columns"][at]["type"]
        kind = (
            pa.float64() if side == CLIPPED else _arrow_type(declared) if side == "rows" else _interval_type(declared)
        )
        fields.append(pa.field(name, kind, metadata=_said(answer["columns"][at]) if side == "rows" else None))
    arrays = [pa.array([_cast(row[each.name], each.type) for row in rows], each.type) for each in fields]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _said(column: Mapping[str, Any]) -> dict[str, str] | None:
    """What the bounds leave out of a value, in words: there also where there are no rows."""
    return {"clipped": column["clipped"]["words"]} if column.get("clipped") else None


def _safe(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):
        return "'" + cell
    return "" if cell is None else cell


def _arrow_type(name: str | None) -> Any:
    base = (name or "VARCHAR").split("(")[0]
    return {
        "BOOLEAN": pa.bool_(),
        "BIGINT": pa.int64(),
        "INTEGER": pa.int64(),
        "DOUBLE": pa.float64(),
        "DECIMAL": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),
    }.get(base, pa.string())


def _interval_type(name: str | None) -> Any:
    kind = _arrow_type(name)
    return kind if kind in (pa.date32(), pa.timestamp("us")) else pa.float64()


def _cast(cell: Any, kind: Any) -> Any:
    if cell is None:
        return None
    if kind == pa.date32():
        return date.fromisoformat(cell)
    if kind == pa.timestamp("us"):
        return datetime.fromisoformat(cell)
    if kind == pa.int64():
        return int(cell)
    if kind == pa.float64():
        return float(cell)
    return cell if kind == pa.bool_() else str(cell)
