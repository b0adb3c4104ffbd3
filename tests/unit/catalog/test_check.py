"""Declarations that make sense become columns and tables; others are refused with what to change."""

from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from service.catalog.check import FileColumn, build_table, check_paths
from service.catalog.check_columns import default_step, parse_type
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.core.errors import CatalogRefused, LossOutOfRange
from service.core.schema import BIGINT, DATE, DOUBLE, TIMESTAMP, SqlType, Table
from service.core.schema_codec import table_from_text, table_to_text

FILE = (
    FileColumn("order_id", "BIGINT"),
    FileColumn("customer_id", "BIGINT"),
    FileColumn("amount", "DECIMAL(10,2)"),
    FileColumn("status", "VARCHAR"),
    FileColumn("day", "DATE"),
    FileColumn("tags", None),
    FileColumn("Odd Name", "VARCHAR"),
)


def declared(**changes: Any) -> TableDeclaration:
    given: dict[str, Any] = {
        "source": {"kind": "parquet", "path": "orders.parquet"},
        "private": True,
        "unit": {"column": "customer_id"},
        "columns": {"amount": {"bounds": [0, 1000]}, "status": {"domain": ["open", "paid"]}},
    }
    return TableDeclaration.model_validate({**given, **changes})


def test_what_is_not_mentioned_takes_the_files_type_and_nothing_else() -> None:
    table = build_table("orders", declared(), FILE)
    assert list(table.columns) == ["amount", "status", "order_id", "customer_id", "day"]
    assert table.columns["day"].type == DATE
    assert table.columns["order_id"].low is None
    assert (table.columns["amount"].low_code, table.columns["amount"].high_code) == (0, 100_000)
    assert table.private


def test_the_rest_can_be_left_out_but_not_the_unit() -> None:
    table = build_table("orders", declared(rest="leave"), FILE)
    assert list(table.columns) == ["amount", "status", "customer_id"]


@pytest.mark.parametrize(
    "columns",
    [
        {"absent": {}},
        {"tags": {}},
        {"status": {"bounds": [0, 1]}},
        {"amount": {"bounds": [5, 1]}},
        {"amount": {"bounds": ["x", "y"]}},
        {"amount": {"bounds": [0, 1], "step": 0}},
        {"amount": {"bounds": [0, 1], "step": "-1"}},
        {"amount": {"bounds": [0, "1e12"], "step": "0.01"}},
        {"amount": {"step": "0.01"}},
        {"amount": {"type": "BLOB"}},
        {"amount": {"type": "DECIMAL(99,2)"}},
        {"day": {"bounds": ["2024-13-01", "2025-01-01"]}},
        {"status": {"domain": []}},
        {"status": {"domain": ["a", "a"]}},
        {"status": {"domain": ["a", 7]}},
        {"order_id": {"domain": ["seven"]}},
        {"order_id": {"max_bytes": 8}},
        {"day": {"max_bytes": 8}},
        {"status": {"max_bytes": 3, "domain": ["äh", "open"]}},
    ],
)
def test_a_column_that_makes_no_sense_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(CatalogRefused):
        build_table("orders", declared(columns=columns), FILE)


@pytest.mark.parametrize(
    "changes",
    [
        {"private": None},
        {"unit": None},
        {"private": False},
        {"unit": {"column": "a", "via": {"column": "a", "references": "b.c"}}},
        {"columns": {"Amount": {}}},
        {"columns": {"<b>": {}}},
        {"columns": {"a\n": {}}},
        {"source": {"kind": "http", "path": "x"}},
        {"columns": {"amount": {"bounds": [0, float("inf")]}}},
        {"surprise": 1},
        {"columns": {"status": {"max_bytes": 0}}},
        {"columns": {"status": {"max_bytes": 65_537}}},
        {"columns": {"status": {"max_bytes": "64"}}},
        {"columns": {"status": {"max_bytes": 2.5}}},
        {"columns": {"status": {"max_bytes": True}}},
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        declared(**changes)


def test_texts_of_private_tables_have_a_limit_and_others_have_one_where_they_say_so() -> None:
    columns: dict[str, Any] = {"status": {"domain": ["é" * 200, None]}, "odd": {"source_name": "Odd Name"}}
    private = build_table("orders", declared(columns=columns), FILE)
    limits = {name: column.max_bytes for name, column in private.columns.items()}
    assert limits == {"status": 400, "odd": 256, "order_id": None, "customer_id": None, "amount": None, "day": None}
    public = build_table("orders", declared(columns=columns, private=False, unit=None), FILE)
    assert all(column.max_bytes is None for column in public.columns.values())
    columns["odd"]["max_bytes"] = 9
    for changes in ({}, {"private": False, "unit": None}):
        assert build_table("orders", declared(columns=columns, **changes), FILE).columns["odd"].max_bytes == 9


def test_a_limit_that_a_value_of_the_domain_would_not_survive_names_that_value() -> None:
    columns = {"status": {"max_bytes": 5, "domain": ["open", "geöff"]}}
    with pytest.raises(CatalogRefused, match="'geöff', which has 6 bytes") as refused:
        build_table("orders", declared(columns=columns), FILE)
    assert refused.value.extra["remedy"] == "declare max_bytes of at least 6"


def test_nothing_becomes_public_by_silence() -> None:
    with pytest.raises(ValidationError, match="private"):
        TableDeclaration.model_validate({"source": {"kind": "csv", "path": "x.csv"}})


@pytest.mark.parametrize(
    ("kind", "low", "high", "step"),
    [
        (BIGINT, 0, 120, Fraction(1)),
        (BIGINT, 0, 10**12, Fraction(1000)),
        (SqlType("DECIMAL", 10, 2), 0, 500, Fraction(1, 100)),
        (DOUBLE, 0, 100, Fraction(1, 2**20)),
        (DOUBLE, -(10**9), 10**9, Fraction(1)),
        (TIMESTAMP, 0, 1_900_000_000 * 10**6, Fraction(10**6)),
    ],
)
def test_the_default_step_is_the_finest_that_keeps_codes_in_32_bits(
    kind: SqlType, low: int, high: int, step: Fraction
) -> None:
    found = default_step(kind, Fraction(low), Fraction(high))
    assert found == step
    assert max(abs(low), abs(high)) / found < 2**31


def test_types_are_widened() -> None:
    assert parse_type("integer") == BIGINT
    assert parse_type("decimal(12, 3)") == SqlType("DECIMAL", 12, 3)


def test_a_declared_table_survives_being_stored() -> None:
    columns = {
        "amount": {"bounds": [0, "999.5"]},
        "status": {"domain": ["open", None]},
        "day": {"bounds": ["2024-01-01", "2025-01-01"], "domain": ["2024-02-29"]},
        "order_id": {"unique": True, "domain": [1, 2]},
        "odd": {"source_name": "Odd Name", "max_bytes": 65_536},
    }
    table = build_table("orders", declared(columns=columns, expected_rows=7, max_rows_per_unit=9), FILE)
    assert table_from_text(table_to_text(table)) == table
    assert table.columns["day"].domain == (date(2024, 2, 29),)


def path(*links: tuple[str, str | None, bool]) -> dict[str, Table]:
    """Tables a → b → …; each with a unique id unless said otherwise."""
    tables = {}
    for name, target, unique in links:
        unit: dict[str, Any] = {"column": "person"}
        if target is not None:
            unit = {"via": {"column": "up", "references": f"{target}.id"}}
        wish = declared(unit=unit, columns={"id": {"unique": unique}})
        file = tuple(FileColumn(column, "BIGINT") for column in ("id", "up", "person"))
        tables[name] = build_table(name, wish, file)
    return tables


def test_a_path_to_the_unit_ends_at_a_unit_and_uses_unique_keys() -> None:
    check_paths(path(("lines", "orders", False), ("orders", "customers", True), ("customers", None, True)))
    for broken in (
        path(("lines", "orders", True)),
        path(("lines", "orders", True), ("orders", None, False)),
        path(("a", "b", True), ("b", "a", True)),
    ):
        with pytest.raises(CatalogRefused):
            check_paths(broken)


def test_amounts_of_a_dataset_are_exact_and_within_its_ceiling() -> None:
    from service.catalog.declared_budget import budget_of

    fits = DatasetDeclaration.model_validate(
        {"unit": "person", "epsilon": 0.1, "ceiling": {"epsilon": "3", "delta": "1e-6"}}
    )
    promise = budget_of(fits)
    assert (promise.epsilon, promise.epsilon_ceiling, promise.delta_ceiling) == (10**11, 3 * 10**12, 10**12)
    for changes in ({"epsilon": "4"}, {"delta": "1e-5"}):
        with pytest.raises(CatalogRefused):
            budget_of(fits.model_copy(update=changes))
    for amount in ("0", "-1", "1e-13", "NaN"):
        with pytest.raises(LossOutOfRange):
            budget_of(fits.model_copy(update={"epsilon": amount}))
