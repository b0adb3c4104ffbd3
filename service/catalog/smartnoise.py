"""SmartNoise metadata YAML into a catalog file that an admin reviews before applying it.

Bounds, types and the private key carry over. What SmartNoise does not say is set to the careful
choice and marked by a comment: where the files are, and how much may be spent.
"""

from typing import Any

import yaml

from service.catalog.apply import load_yaml
from service.core.errors import CatalogRefused

SMARTNOISE_TYPES = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "datetime": "TIMESTAMP",
}
TABLE_WORDS = {
    "row_privacy", "rows", "max_ids", "max_contrib", "sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns",
    "use_dpsu", "rowcount",
}  # fmt: skip
HEADER = """# Made from SmartNoise metadata. Review before `halftone apply`:
# - source.path: where the files are, below a folder of HALFTONE_SOURCES
# - epsilon and delta: the promise to the people in the data
"""


def from_smartnoise(text: str) -> str:
    """The catalog file as text."""
    metadata = load_yaml(text)
    if not isinstance(metadata, dict) or len(metadata) != 1:
        raise CatalogRefused("SmartNoise metadata has one top level: the collection's name")
    [schemas] = metadata.values()
    datasets: dict[str, Any] = {}
    for schema, tables in _named(schemas, "schemas").items():
        name = _name(schema or "data")
        built = {_name(table): _table(name, table, body) for table, body in _named(tables, "tables").items()}
        datasets[name] = {"unit": "person", "epsilon": "1", "delta": "1e-6", "tables": built}
    return HEADER + yaml.safe_dump({"datasets": datasets}, sort_keys=False, allow_unicode=True)


def _table(dataset: str, table: str, body: Any) -> dict[str, Any]:
    columns = {str(k): v for k, v in _named(body, "columns").items() if k not in TABLE_WORDS}
    units = [name for name, column in columns.items() if isinstance(column, dict) and column.get("private_id")]
    if body.get("row_privacy"):
        raise CatalogRefused(f"{table} protects rows, not people (row_privacy); name the column of the person instead")
    if len(units) != 1:
        raise CatalogRefused(f"{table} needs exactly one column with private_id: True")
    made: dict[str, Any] = {
        "source": {"kind": "parquet", "path": f"{dataset}/{_name(table)}.parquet"},
        "private": True,
        "unit": {"column": _name(units[0])},
        "columns": {_name(name): _column(table, name, column) for name, column in columns.items()},
    }
    if isinstance(body.get("rows"), int):
        made["expected_rows"] = max(1, body["rows"])
    return made


def _column(table: str, name: str, column: Any) -> dict[str, Any]:
    if not isinstance(column, dict) or column.get("type") not in SMARTNOISE_TYPES:
        raise CatalogRefused(f"{table}.{name} has no type that SmartNoise knows")
    made: dict[str, Any] = {"type": SMARTNOISE_TYPES[column["type"]]}
    if column.get("lower") is not None and column.get("upper") is not None:
        made["bounds"] = [column["lower"], column["upper"]]
    if _name(name) != name:
        made["source_name"] = name
    return made


def _named(value: Any, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise CatalogRefused(f"SmartNoise metadata lists {what} by name here")
    return value


def _name(text: object) -> str:
    """A name of ours: lower case, with everything else as an underscore."""
    kept = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in str(text).lower())
    return (kept if kept[:1].isalpha() else f"t_{kept}")[:63]
