"""Declared tables as they are stored: what earlier versions wrote is read, and what is written stays equal."""

import json
from datetime import date, datetime
from fractions import Fraction

import pytest

from service.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TIMESTAMP,
    VARCHAR,
    Column,
    SqlType,
    Table,
    UnitColumn,
    UnitVia,
)
from service.core.schema_codec import table_from_json, table_from_text, table_to_json, table_to_text

COLUMNS = (
    Column("p", SqlType("DECIMAL", 12, 0), source_name="P!"),
    Column("x", SqlType("DECIMAL", 10, 2), Fraction(-1, 3), Fraction(5), Fraction(1, 100)),
    Column("d", DATE, domain=(date(2024, 1, 1), None)),
    Column("m", TIMESTAMP, domain=(datetime(2024, 1, 1, 12, 30),)),
    Column("f", DOUBLE, domain=(0.5, 1)),
    Column("b", BOOLEAN, domain=(True, False)),
    Column("k", BIGINT, unique=True),
    Column("s", VARCHAR, domain=("ä", "b")),
)
TABLE = Table("t", {column.name: column for column in COLUMNS}, UnitVia("p", "q", "r"), 7, 9)

# Written by version 0.1.0 before both places shared a codec.
CATALOG = (
    '{"name": "t", "unit": ["p", "q", "r"], "expected_rows": 7, "max_rows_per_unit": 9, "columns": ['
    '{"name": "p", "type": "DECIMAL(12,0)", "low": null, "high": null, "step": null, "domain": null, "unique": false,'
    ' "source_name": "P!"}, '
    '{"name": "x", "type": "DECIMAL(10,2)", "low": "-1/3", "high": "5", "step": "1/100", "domain": null,'
    ' "unique": false, "source_name": null}, '
    '{"name": "d", "type": "DATE", "low": null, "high": null, "step": null, "domain": [{"date": "2024-01-01"}, null],'
    ' "unique": false, "source_name": null}, '
    '{"name": "m", "type": "TIMESTAMP", "low": null, "high": null, "step": null,'
    ' "domain": [{"timestamp": "2024-01-01T12:30:00"}], "unique": false, "source_name": null}, '
    '{"name": "f", "type": "DOUBLE", "low": null, "high": null, "step": null, "domain": [0.5, 1], "unique": false,'
    ' "source_name": null}, '
    '{"name": "b", "type": "BOOLEAN", "low": null, "high": null, "step": null, "domain": [true, false],'
    ' "unique": false, "source_name": null}, '
    '{"name": "k", "type": "BIGINT", "low": null, "high": null, "step": null, "domain": null, "unique": true,'
    ' "source_name": null}, '
    '{"name": "s", "type": "VARCHAR", "low": null, "high": null, "step": null, "domain": ["\\u00e4", "b"],'
    ' "unique": false, "source_name": null}]}'
)
MANIFEST = (
    '{"name": "t", "columns": ['
    '{"name": "p", "type": ["DECIMAL", 12, 0], "low": null, "high": null, "step": null, "domain": null,'
    ' "unique": false, "source_name": "P!"}, '
    '{"name": "x", "type": ["DECIMAL", 10, 2], "low": "-1/3", "high": "5", "step": "1/100", "domain": null,'
    ' "unique": false, "source_name": null}, '
    '{"name": "d", "type": ["DATE", null, null], "low": null, "high": null, "step": null,'
    ' "domain": [{"date": "2024-01-01"}, null], "unique": false, "source_name": null}, '
    '{"name": "m", "type": ["TIMESTAMP", null, null], "low": null, "high": null, "step": null,'
    ' "domain": [{"timestamp": "2024-01-01T12:30:00"}], "unique": false, "source_name": null}, '
    '{"name": "f", "type": ["DOUBLE", null, null], "low": null, "high": null, "step": null, "domain": [0.5, 1],'
    ' "unique": false, "source_name": null}, '
    '{"name": "b", "type": ["BOOLEAN", null, null], "low": null, "high": null, "step": null, "domain": [true, false],'
    ' "unique": false, "source_name": null}, '
    '{"name": "k", "type": ["BIGINT", null, null], "low": null, "high": null, "step": null, "domain": null,'
    ' "unique": true, "source_name": null}, '
    '{"name": "s", "type": ["VARCHAR", null, null], "low": null, "high": null, "step": null,'
    ' "domain": ["\\u00e4", "b"], "unique": false, "source_name": null}], '
    '"unit": {"column": "p", "table": "q", "key": "r"}, "expected_rows": 7, "max_rows_per_unit": 9}'
)


def test_tables_are_written_byte_for_byte_as_before() -> None:
    assert table_to_text(TABLE) == CATALOG
    assert json.dumps(table_to_json(TABLE)) == MANIFEST


@pytest.mark.parametrize("stored", [CATALOG, MANIFEST], ids=["catalog", "manifest"])
def test_what_either_place_has_stored_is_read(stored: str) -> None:
    assert table_from_text(stored) == TABLE
    assert [type(value) for value in table_from_text(stored).columns["f"].domain or ()] == [float, int]


@pytest.mark.parametrize("unit", [UnitColumn("p"), None])
def test_every_kind_of_unit_survives_both_spellings(unit: UnitColumn | None) -> None:
    table = Table("t", {"p": Column("p", BIGINT)}, unit)
    assert table_from_json(table_to_json(table)) == table
    assert table_from_text(table_to_text(table)) == table


def test_the_limit_of_a_text_is_written_where_there_is_one_and_survives_both_spellings() -> None:
    columns = {"p": Column("p", BIGINT), "s": Column("s", VARCHAR, max_bytes=256), "t": Column("t", VARCHAR)}
    table = Table("t", columns, UnitColumn("p"))
    assert table_from_json(table_to_json(table)) == table
    assert table_from_text(table_to_text(table)) == table
    assert table_to_text(table).count("max_bytes") == 1
