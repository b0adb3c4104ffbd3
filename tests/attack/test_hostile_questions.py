"""Hostile questions are understood or refused with a remedy, before anything is charged: never a crash.

And they are hostile: each kind has some that are accepted and that the victim's presence gives rows to work on.
"""

import duckdb
import pytest

from service.catalog.check import FileColumn, build_table
from service.catalog.declare import TableDeclaration
from service.core.errors import BoundsMissing, ConstructRefused, ServiceError, SyntaxRefused
from service.core.plan import Query
from service.core.request import Ask
from service.core.schema import VARCHAR
from service.sql.expr.lengths import MADE_BYTES
from service.sql.understand import understand
from tests.attack.hostile_clinic import declarations, hostile_schema, rows
from tests.attack.hostile_questions import BY_WORK, KINDS, Hostile, hostile_questions
from tests.fixtures.prepared import prepared

SEED, EACH = 13, 12
SCHEMA = hostile_schema()
SMALL = {"people": 4, "visits": 6, "days": 4, "codes": 10}


def of_kind(kind: str) -> list[Hostile]:
    return [question for question in hostile_questions(SEED, EACH) if question.kind == kind]


def understood(question: Hostile) -> Query | ServiceError:
    try:
        return understand(Ask("clinic", question.sql), SCHEMA)
    except (SyntaxRefused, ConstructRefused, BoundsMissing) as refusal:
        return refusal


@pytest.fixture(scope="module")
def neighbours() -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    """With the victim and without, and small public tables."""
    return prepared(SCHEMA, rows(victim=True, **SMALL)), prepared(SCHEMA, rows(victim=False, **SMALL))


@pytest.mark.parametrize("kind", [kind.__name__ for kind in KINDS])
def test_every_question_is_understood_or_refused_with_a_remedy(kind: str) -> None:
    for question in of_kind(kind):
        found = understood(question)
        if isinstance(found, ServiceError):
            assert found.extra.get("remedy"), question.sql
            assert len(found.detail) < 400
            continue
        for part in (part for plan in found.cores for part in (*plan.keys, *plan.attributes)):
            if part.type == VARCHAR:
                assert part.max_bytes is not None, question.sql
                assert part.max_bytes <= MADE_BYTES, question.sql


@pytest.mark.parametrize("kind", [kind.__name__ for kind in KINDS if kind not in BY_WORK])
def test_the_victim_decides_over_the_rows_of_every_kind(
    kind: str, neighbours: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]
) -> None:
    decided = 0
    for question in of_kind(kind):
        assert question.person in question.sql
        found = understood(question)
        if isinstance(found, ServiceError):
            continue
        with_victim, without = (
            sum(database.execute(f"SELECT count(*) FROM ({plan.rows.sql(dialect='duckdb')})").fetchall()[0][0]
                for plan in found.cores)
            for database in neighbours
        )  # fmt: skip
        assert with_victim >= without, question.sql
        decided += with_victim > 0 and without == 0
    assert decided > 0


@pytest.mark.parametrize("kind", [kind.__name__ for kind in BY_WORK])
def test_or_over_the_work_that_as_many_rows_take(kind: str) -> None:
    assert any(isinstance(understood(question), Query) for question in of_kind(kind))


def test_the_schema_is_what_the_catalog_makes_of_its_declarations() -> None:
    files = {
        table.name: tuple(FileColumn(column.name, str(column.type)) for column in table.columns.values())
        for table in SCHEMA.tables.values()
    }
    for name, declared in declarations(visits=200).items():
        body = {"source": {"kind": "parquet", "path": f"{name}.parquet"}, **declared}
        built = build_table(name, TableDeclaration.model_validate(body), files[name])
        assert built == SCHEMA.tables[name]


def test_the_same_seed_gives_the_same_questions_and_another_seed_others() -> None:
    assert hostile_questions(SEED, 5) == hostile_questions(SEED, 5)
    assert hostile_questions(SEED, 5) != hostile_questions(SEED + 1, 5)


def test_texts_that_grow_are_among_what_is_refused() -> None:
    """Without inferred lengths these would be accepted, and fail exactly when the victim is there."""
    refusals = [understood(question) for question in of_kind("texts_that_double")]
    words = f"texts are computed up to {MADE_BYTES}"
    assert any(isinstance(found, ConstructRefused) and words in found.detail for found in refusals)
