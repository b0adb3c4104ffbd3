"""Limits of texts move no question: what was stored before texts had one is found again."""

from dataclasses import replace

import pytest

from service.core.errors import ConstructRefused
from service.core.request import Ask
from service.core.schema import VARCHAR, Schema
from service.core.sizes import PublicSize
from service.sql.understand import understand
from service.walk.sameness import frame, identity
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA


def limited(schema: Schema, max_bytes: int) -> Schema:
    """The schema with a limit for every private text, and public ones measured."""
    tables, sizes = {}, {}
    for table in schema.tables.values():
        texts = [column.name for column in table.columns.values() if column.type == VARCHAR]
        if table.private:
            cut = {name: replace(table.columns[name], max_bytes=max_bytes) for name in texts}
            tables[table.name] = replace(table, columns={**table.columns, **cut})
        else:
            tables[table.name] = table
            sizes[table.name] = PublicSize(10, {}, dict.fromkeys(texts, 20))
    return replace(schema, tables=tables, sizes=sizes)


@pytest.mark.parametrize("sql", accepted())
def test_a_question_keeps_its_digest_its_frame_and_its_statements(sql: str) -> None:
    before, after = (understand(Ask("shop", sql), schema).cores for schema in (SCHEMA, limited(SCHEMA, 256)))
    for old, new in zip(before, after, strict=True):
        assert (old.digest, frame(old), old.rows.sql()) == (new.digest, frame(new), new.rows.sql())
        arguments = zip((*old.measures, *old.attributes), (*new.measures, *new.attributes), strict=True)
        assert all(identity(old, a) == identity(new, b) for a, b in arguments)
        for part in (*new.keys, *new.attributes):
            assert (part.max_bytes is not None) == (part.type == VARCHAR), part.label
            assert part.max_bytes is None or part.max_bytes <= 2048


@pytest.mark.parametrize(
    ("expression", "inferred"),
    [
        ("name", 256), ("UPPER(name)", 384), ("TRIM(name)", 256), ("LEFT(name, 10)", 40), ("name || '-é'", 259),
        ("CONCAT(name, name, name)", 768), ("REPLACE(name, 'ab', 'ß')", 256), ("REPLACE(name, 'a', 'ß')", 512),
        ("COALESCE(name, 'nobody')", 256), ("CASE WHEN vip THEN 'yes' ELSE 'maybe' END", 5),
        ("STRFTIME(joined, '%Y-%m')", 10), ("CAST(vip AS VARCHAR)", 5),
    ],
)  # fmt: skip
def test_lengths_are_inferred(expression: str, inferred: int) -> None:
    sql = f"SELECT {expression}, COUNT(*) FROM customers GROUP BY 1"
    (plan,) = understand(Ask("shop", sql), limited(SCHEMA, 256)).cores
    assert plan.keys[0].max_bytes == inferred


@pytest.mark.parametrize(
    "expression", ["UPPER(name)", "name || name", "REPLACE(name, 'a', '🎉')", "CONCAT('x', name, 'y')"]
)
def test_only_what_grows_beyond_the_limit_is_refused(expression: str) -> None:
    schema = limited(SCHEMA, 16_384)
    question = "SELECT COUNT(*) FROM customers WHERE {} = 'x'"
    with pytest.raises(ConstructRefused) as refusal:
        understand(Ask("shop", question.format(expression)), schema)
    assert expression in refusal.value.detail
    assert refusal.value.extra["remedy"]
    for fits in ("name", "TRIM(name)", "SUBSTRING(name, 3)", expression.replace("name", "LEFT(name, 1000)")):
        understand(Ask("shop", question.format(fits)), schema)
