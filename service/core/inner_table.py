"""The table of a DuckDB file, under one name: claims and public files are compared by it.

A table outside the schema main is named with its schema and in no other way (service/engine/duckdb/importing/reading.py
finds no other), and neither name has a dot; so what a source says is one table. Names that were written down without
a schema by earlier versions may be of any: they count as every table that they could be.
"""

MAIN = "main"


def qualified(table: str | None) -> str:
    """schema.table; empty for a file that has no tables inside."""
    if not table:
        return ""
    return table if "." in table else f"{MAIN}.{table}"


def may_be_same(one: str, other: str) -> bool:
    """Whether two names, of one file, may be of the same rows. Without a name it is the whole file."""
    if not one or not other:
        return True
    if "." in one and "." in other:
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]
