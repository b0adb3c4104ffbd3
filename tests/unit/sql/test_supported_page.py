"""docs/supported-sql.md says what the tables of the code say, and its examples do what it claims."""

import re
from pathlib import Path
from typing import get_args

import pytest
from sqlglot import exp

from service.api.requests import Dialect
from service.core.aggregates import AGGREGATES
from service.core.request import Ask
from service.sql.expr.arguments import SUPPORTED
from service.sql.expr.compiler import TABLE
from service.sql.read import parse
from service.sql.read.allow import SCALAR
from service.sql.understand import understand
from tests.fixtures.sql.shop import SCHEMA

PAGE = (Path(__file__).parents[3] / "docs" / "supported-sql.md").read_text()


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.mark.parametrize("group", SUPPORTED)
def test_the_page_lists_the_functions_of_the_table(group: str) -> None:
    assert block(group).splitlines() == [f"- `{line}`" for line in SUPPORTED[group]]


def test_the_page_lists_dialects_and_limits() -> None:
    assert block("dialects") == ", ".join(f"`{dialect}`" for dialect in parse.DIALECTS)
    assert get_args(Dialect) == parse.DIALECTS, "the API reads all of them"
    limits = {
        "bytes of SQL": parse.BYTES,
        "tokens": parse.TOKENS,
        "levels of nesting": parse.NESTING,
        "joins": parse.JOINS,
        "outputs": parse.OUTPUTS,
        "items of an IN list": parse.IN_ITEMS,
        "tables, counted as often as they are read": parse.SOURCES,
    }
    assert block("limits").splitlines() == [f"- {name}: {value}" for name, value in limits.items()]


def test_the_page_lists_the_aggregates_of_the_table_and_each_is_understood() -> None:
    listed = re.findall(r"`([^`]+)`", block("aggregates"))
    assert sorted(listed) == sorted(form for spec in AGGREGATES.values() for form in spec.shown)
    places = {"x": "age", "p": "0.5", "unit": "customer_id", "condition": "age > 1"}
    for form in listed:
        call = form if "(" in form else f"{form}(x)"
        sql = re.sub(r"\b(x|p|unit|condition)\b", lambda m: places[m[1]], call).replace("MODE(age)", "MODE(country)")
        assert understand(Ask("shop", f"SELECT {sql} FROM customers"), SCHEMA).cores


def test_every_function_line_is_understood() -> None:
    places = {"x": "age", "a": "name", "b": "name", "t": "name", "d": "CAST(joined AS TIMESTAMP)"}
    for group, lines in SUPPORTED.items():
        for line in (part for whole in lines for part in re.split(r", (?=[A-Z]|a \|\|)", whole)):
            for sql in _instances(line, group, places):
                understand(Ask("shop", f"SELECT COUNT(*) FROM customers WHERE ({sql}) IS NOT NULL"), SCHEMA)


def _instances(line: str, group: str, places: dict[str, str]) -> list[str]:
    """A line of the page with columns for its letters and a literal for each `literal`."""
    literals = iter(["'%Y'"] if "STRFTIME" in line else ["'n'", "''"] if "REPLACE" in line else ["','", "1"])
    if group != "text" or line.startswith(("LEFT", "RIGHT", "SUBSTRING")):
        literals = iter(["'%Y'"] if "STRFTIME" in line else ["INTERVAL '1' DAY"] if "±" in line else ["2", "2"])
    text = line.replace(", …", "").replace("±", "+").replace("INTERVAL literal", "literal").replace("'unit'", "'day'")
    text = text.replace("'part'", "'month'").replace("date - date", "joined - joined")
    text = re.sub(r"\bliteral\b", lambda _: next(literals), text)
    if group == "numbers":
        places = {**places, "a": "age", "b": "lucky"}
    if "DATE_DIFF" in line:
        places = {**places, "a": "joined", "b": "joined"}
    choices = re.search(r"([\w']+(?: \| [\w']+)+)", text)
    chosen = [text.replace(choices[1], one) for one in choices[1].split(" | ")] if choices else [text]
    return [re.sub(r"(?<!['\w])([xabtd])(?!['\w])", lambda m: places[m[1]], one) for one in chosen]


def test_what_may_be_parsed_can_be_compiled_or_is_an_aggregate() -> None:
    """No node passes the allow-list and then has no handler: it would be refused with the wrong words."""
    parts = (exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var)
    assert {kind for kind in SCALAR if kind not in parts} <= set(TABLE)


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_are_answered(sql: str) -> None:
    assert understand(Ask("shop", sql), SCHEMA).cores
