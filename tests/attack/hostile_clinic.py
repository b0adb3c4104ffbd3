"""The tables that hostile questions are put to: everybody is ordinary but the victim, who may be there or not."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from service.core.schema import BIGINT, DATE, VARCHAR, Column, Defaults, Schema, SqlType, Table, UnitColumn
from service.core.sizes import PrivateSize, PublicSize

F = Fraction
VICTIM = 6284
START = date(2024, 1, 1)
FIRST_DAY = (START - date(1970, 1, 1)).days
NOTE_BYTES = 256


def _table(name: str, unit: UnitColumn | None, *columns: Column, most: int | None = None) -> Table:
    return Table(name, {column.name: column for column in columns}, unit, max_rows_per_unit=most)


def hostile_schema(*, people: int = 60_000, visits: int = 200, days: int = 4_000, codes: int = 5_000) -> Schema:
    """Two private tables and two public ones, with sizes: one person has up to `visits` visits, and each of the ten
    values of codes.code is there for a tenth of the rows."""
    tables = (
        _table(
            "people", UnitColumn("person"),
            Column("person", BIGINT, unique=True),
            Column("salary", BIGINT, F(0), F(200_000), F(1)),
            Column("town", VARCHAR, max_bytes=64),
            Column("note", VARCHAR, max_bytes=NOTE_BYTES),
            most=1,
        ),
        _table(
            "visits", UnitColumn("person"),
            Column("person", BIGINT),
            Column("ward", VARCHAR, domain=("a", "b", "c"), max_bytes=64),
            Column("cost", SqlType("DECIMAL", 10, 2), F(0), F(1000), F(1, 100)),
            Column("day", DATE, F(FIRST_DAY), F(FIRST_DAY + 4_000), F(1)),
            Column("drug", BIGINT),
            Column("note", VARCHAR, max_bytes=NOTE_BYTES),
            most=visits,
        ),
        _table("cal", None, Column("num", BIGINT, unique=True), Column("day", DATE), Column("label", VARCHAR)),
        _table("codes", None, Column("code", BIGINT), Column("word", VARCHAR)),
    )  # fmt: skip
    sizes = {
        "people": PrivateSize(people, people, 1),
        "visits": PrivateSize(people * 6, people, visits),
        "cal": PublicSize(days, {"num": 1, "day": 1, "label": days}, {"label": 8}),
        "codes": PublicSize(codes, {"code": -(-codes // 10), "word": codes}, {"word": 200}),
    }
    return Schema(
        "clinic", "person", {table.name: table for table in tables}, defaults=Defaults(rows_per_unit=20), sizes=sizes
    )


def declarations(*, visits: int = 200) -> dict[str, dict[str, Any]]:
    """The same tables as an admin declares them; the source is the caller's to add."""
    last = START + timedelta(days=4_000)
    people = {"person": {"unique": True}, "salary": {"bounds": [0, 200_000]}, "town": {"max_bytes": 64}, "note": {}}
    seen = {
        "person": {}, "ward": {"domain": ["a", "b", "c"], "max_bytes": 64}, "cost": {"bounds": [0, 1000]},
        "day": {"bounds": [START.isoformat(), last.isoformat()]}, "drug": {}, "note": {},
    }  # fmt: skip
    private: dict[str, Any] = {"private": True, "unit": {"column": "person"}}
    return {
        "people": {**private, "columns": people, "max_rows_per_unit": 1},
        "visits": {**private, "columns": seen, "max_rows_per_unit": visits},
        "cal": {"private": False, "columns": {"num": {"unique": True}}},
        "codes": {"private": False},
    }


def rows(
    *, victim: bool, people: int = 50, visits: int = 200, days: int = 4_000, codes: int = 5_000
) -> Mapping[str, Sequence[Mapping[str, object]]]:
    """Everybody else has a low salary, three visits and short notes. The victim has a high one, `visits` visits and
    notes of as many bytes as are kept, each note another."""
    others = [{"person": p, "salary": 900 + p, "town": "small", "note": f"n{p}"} for p in range(1, people + 1)]
    seen: list[Mapping[str, object]] = [
        _visit(p, cost=10 + at, note=f"v{at}", at=at) for p in range(1, people + 1) for at in range(3)
    ]
    if victim:
        others.append({"person": VICTIM, "salary": 90_000, "town": "large", "note": "a" * NOTE_BYTES})
        seen += [_visit(VICTIM, cost=990, note=f"{at:05d}".ljust(NOTE_BYTES, "a"), at=at) for at in range(visits)]
    calendar = [{"num": n, "day": START + timedelta(days=n), "label": "workday"} for n in range(days)]
    words = [{"code": n % 10, "word": f"{n:05d}".ljust(200, "w")} for n in range(codes)]
    return {"people": others, "visits": seen, "cal": calendar, "codes": words}


def _visit(person: int, *, cost: int, note: str, at: int) -> Mapping[str, object]:
    day = START + timedelta(days=at % 4_000)
    return {
        "person": person,
        "ward": "abc"[at % 3],
        "cost": cost,
        "day": day,
        "drug": person * 1_000 + at,
        "note": note,
    }
