"""One stored answer in the form the caller asks for: JSON as stored, flat JSON, CSV or Arrow.

All forms are made from the stored bytes, so they hold the same released values. CSV is safe to open in
a spreadsheet: text that would start a formula gets a leading apostrophe.
"""

import csv
import io
import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
OFFERED = (JSON, CSV, ARROW)

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def choose(accept: str | None) -> str | None:
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
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def flat(body: bytes) -> bytes:
    """A list of objects: what Grafana's JSON data sources and most scripts like best."""
    answer = json.loads(body)
    names = [column["name"] for column in answer["columns"]]
    rows = []
    for cells, low, high in zip(answer["rows"], answer["low_95"], answer["high_95"], strict=True):
        row: dict[str, Any] = dict(zip(names, cells, strict=True))
        for name, column, bottom, top in zip(names, answer["columns"], low, high, strict=True):
            if column["role"] == "value":
                row[f"{name}_low_95"], row[f"{name}_high_95"] = bottom, top
        rows.append(row)
    return json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def to_csv(body: bytes) -> bytes:
    """The flat rows as CSV with a header line; dates and text quoted where needed."""
    rows = json.loads(flat(body))
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow([_safe(name) for name in (rows[0] if rows else _flat_names(body))])
    for row in rows:
        writer.writerow([_safe(cell) for cell in row.values()])
    return sink.getvalue().encode()


def to_arrow(body: bytes) -> bytes:
    """The flat rows as one Arrow stream, typed by the answer's column types."""
    answer = json.loads(body)
    rows = json.loads(flat(body))
    fields: list[tuple[str, Any]] = []
    for column in answer["columns"]:
        fields.append((column["name"], _arrow_type(column["type"])))
        if column["role"] == "value":
            fields += [(f"{column['name']}_{side}_95", _interval_type(column["type"])) for side in ("low", "high")]
    arrays = [pa.array([_cast(row.get(name), kind) for row in rows], kind) for name, kind in fields]
    table = pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(name, kind) for name, kind in fields]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _flat_names(body: bytes) -> list[str]:
    names: list[str] = []
    for column in json.loads(body)["columns"]:
        names.append(column["name"])
        if column["role"] == "value":
            names += [f"{column['name']}_low_95", f"{column['name']}_high_95"]
    return names


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
