"""Panels in a real PostgreSQL: a BI tool's role reads them and can do nothing else."""

import json

import psycopg
import psycopg.sql
import pytest

from service.released.publish import Publisher
from tests.fixtures.postgres import new_database

ANSWER = {
    "columns": [
        {"name": "country", "type": "VARCHAR", "role": "key"},
        {"name": "day", "type": "DATE", "role": "key"},
        {"name": 'n"; DROP TABLE x; --', "type": "BIGINT", "role": "value"},
    ],
    "rows": [["DE", "2024-02-29", 12], [None, None, -3]],
    "low_95": [[None, None, 2.5], [None, None, -13]],
    "high_95": [[None, None, 21.5], [None, None, 7]],
}
FIRST, SECOND = "2026-01-01T00:00:00.000+00:00", "2026-01-02T00:00:00.000+00:00"


@pytest.fixture(scope="module")
def url() -> str:
    made = new_database()
    with psycopg.connect(made.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS bi_reader")
        admin.execute("CREATE ROLE bi_reader LOGIN")
    return made


def test_a_reader_sees_values_intervals_and_times_and_can_not_write(url: str) -> None:
    publisher = Publisher(url, schema="halftone", reader="bi_reader")
    publisher.publish("sales", json.dumps(ANSWER).encode(), FIRST)
    publisher.publish("sales", json.dumps(ANSWER).encode(), SECOND)
    publisher.publish("sales", json.dumps(ANSWER).encode(), SECOND)  # the same refresh again replaces itself
    publisher.close()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as reader:
        reader.execute("SET ROLE bi_reader")
        rows = reader.execute("SELECT * FROM halftone.sales ORDER BY released_at, country").fetchall()
        assert len(rows) == 4
        assert rows[0][1] == "DE"
        assert rows[0][3:] == (12, 2.5, 21.5, None), "what bounds leave out of it is not told by an answer of before"
        for forbidden in (
            "DELETE FROM halftone.sales",
            "CREATE TABLE halftone.mine (x int)",
            "DROP TABLE halftone.sales",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(forbidden)


def test_a_panel_with_new_columns_starts_anew(url: str) -> None:
    publisher = Publisher(url, schema="halftone", reader="bi_reader")
    publisher.publish("changing", json.dumps(ANSWER).encode(), FIRST)
    fewer = {**ANSWER, "columns": ANSWER["columns"][:1], "rows": [["FR"]], "low_95": [[None]], "high_95": [[None]]}
    publisher.publish("changing", json.dumps(fewer).encode(), SECOND)
    with psycopg.connect(url.replace("+psycopg", "")) as reader:
        assert reader.execute("SELECT country FROM halftone.changing").fetchall() == [("FR",)]
    publisher.withdraw("changing")
    with psycopg.connect(url.replace("+psycopg", "")) as reader, pytest.raises(psycopg.errors.UndefinedTable):
        reader.execute("SELECT 1 FROM halftone.changing")
    publisher.close()


def test_names_of_any_length_and_alphabet_keep_their_table(url: str) -> None:
    """PostgreSQL cuts names at 63 bytes: were ours longer, every refresh would begin a new table."""
    publisher = Publisher(url, schema="halftone", reader="bi_reader")
    names = ["ä" * 60, "ä" * 61, "n", "n", "100%", "a(b):c", ""]
    columns = [{"name": name, "type": "BIGINT", "role": "value"} for name in names]
    cells = [list(range(len(names)))]
    answer = json.dumps({"columns": columns, "rows": cells, "low_95": cells, "high_95": cells}).encode()
    publisher.publish("long_names", answer, FIRST)
    publisher.publish("long_names", answer, SECOND)
    publisher.close()
    with psycopg.connect(url.replace("+psycopg", "")) as reader:
        rows = reader.execute("SELECT * FROM halftone.long_names ORDER BY released_at").fetchall()
    assert [row[1 : -len(names) : 3] for row in rows] == [tuple(range(len(names)))] * 2


def test_a_table_of_an_older_version_grows_and_keeps_its_past(url: str) -> None:
    publisher = Publisher(url, schema="halftone", reader="bi_reader")
    names = ["n", "100%", "a(b):c", 'q"']
    columns = [{"name": name, "type": "BIGINT", "role": "value", "clipped_share": 0.25} for name in names]
    cells = [[1, 2, 3, 4]]
    answer = json.dumps({"columns": columns, "rows": cells, "low_95": cells, "high_95": cells}).encode()
    publisher.publish("grown", answer, FIRST)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        for name in names:
            identifier = psycopg.sql.Identifier(f"{name}_clipped")
            admin.execute(psycopg.sql.SQL("ALTER TABLE halftone.grown DROP COLUMN {}").format(identifier))
    publisher.publish("grown", answer, SECOND)
    publisher.publish("grown", answer, SECOND)
    publisher.close()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as reader:
        reader.execute("SET ROLE bi_reader")
        rows = reader.execute("SELECT * FROM halftone.grown ORDER BY released_at").fetchall()
    assert [row[-4:] for row in rows] == [(None,) * 4, (0.25,) * 4]
    assert [row[1] for row in rows] == [1, 1]
