"""The outer SQL tried before anything is charged: an error of type or name costs nothing.

What stands above a core is ordinary SQL, and only the scratch engine knows what fits what in it. So it is
asked before the charge, over made-up rows in tables that have the columns and types which the released
and public ones will have. Invariant S1 holds: a refusal here reads the request and the declarations, and
neither a row nor a file of the dataset. What depends on released values (a division, an overflow, a cast of a
text that is no number) can still only show once they are there.
"""

from functools import lru_cache

from sqlglot import exp

from service.core.errors import ConstructRefused, TooBusy
from service.core.plan import Query
from service.core.schema import Schema, SqlType
from service.engine.duckdb.scratch import Rehearsed, ScratchLost, ScratchRefused
from service.sql.outer.places import first_place, marked, written_at
from service.walk.answer_json import can_show
from service.walk.outer_sql import ScratchRun, core_types, is_plain

SECONDS = 10.0
REMEMBERED = 1024
NO_SUCH_CAST = "Unimplemented type for cast"  # whatever the value

CAST = "make the types fit, with CAST(x AS …) where they differ"
REMEDIES = {
    "GROUP BY clause": "put it into GROUP BY, or aggregate it",
    "Subquery returns": "select one column in the subquery",
    "format specifier": "use the codes of strftime: %Y, %m, %d, %H, %M, %S",
}
SHOW = "return numbers, text or dates; a span of time as DATE_DIFF('second', a, b)"

Tables = tuple[tuple[str, tuple[tuple[str, SqlType], ...]], ...]


class Rehearsal:
    """Remembers what has passed: a dashboard asks the same again and again."""

    def __init__(self, scratch: ScratchRun) -> None:
        self._scratch = scratch
        self._rehearsed = lru_cache(maxsize=REMEMBERED)(self._rehearse)

    def check(self, query: Query, schema: Schema) -> None:
        """Raises ConstructRefused where the outer SQL could not run on any released values."""
        if is_plain(query):
            return
        select, tables = query.outer.select, _tables(query, schema)
        try:
            found = self._rehearsed(select.sql(dialect="duckdb"), tables)
            if found.cast_error is not None and _in_any_case(found.cast_error, select):
                raise found.cast_error
        except ScratchLost:
            raise TooBusy("the SQL could not be checked now; ask again", {"retry_after_s": 1}) from None
        except ScratchRefused as refused:
            raise _refusal(refused, self._place(select, tables)) from None
        _check_outputs(query, found.types)

    def _rehearse(self, sql: str, tables: Tables) -> Rehearsed:
        return self._scratch.rehearse(sql, {name: dict(columns) for name, columns in tables}, SECONDS)

    def _place(self, select: exp.Expression, tables: Tables) -> dict[str, str | int]:
        """Line and column of what was refused: the same SQL fails again, now with its places marked."""
        text = marked(select)
        try:
            failed = self._rehearse(text, tables).cast_error
        except ScratchRefused as refused:
            failed = refused
        return written_at(text, failed.line) if failed is not None else {}


def _tables(query: Query, schema: Schema) -> Tables:
    cores = [(f"core_{index}", tuple(core_types(plan).items())) for index, plan in enumerate(query.cores)]
    public = [
        (name, tuple((column.name, column.type) for column in schema.tables[name].columns.values()))
        for name in query.outer.public_tables
    ]
    return (*public, *cores)


def _in_any_case(failed: ScratchRefused, select: exp.Expression) -> bool:
    """Is a failed cast the SQL's own fault? It is if there is no such cast, or if it is about a literal."""
    said = _first_line(failed.message)
    texts = {str(part.this) for part in select.find_all(exp.Literal) if part.is_string and part.this}
    return NO_SUCH_CAST in said or any(f"'{text}'" in said or f'"{text}"' in said for text in texts)


def _refusal(refused: ScratchRefused, place: dict[str, str | int]) -> ConstructRefused:
    said = _first_line(refused.message)
    remedy = next((remedy for words, remedy in REMEDIES.items() if words in said), CAST)
    return ConstructRefused(
        f"what is done with the aggregates does not fit: {said}", {"construct": "outer SQL", "remedy": remedy, **place}
    )


def _first_line(message: str) -> str:
    """Without the kind of error before it, and the list of candidates behind."""
    return message.split("\n", 1)[0].partition(" Error: ")[2] or message.split("\n", 1)[0]


def _check_outputs(query: Query, types: tuple[str, ...]) -> None:
    select = query.outer.select
    assert isinstance(select, exp.Query)
    for output, tree, kind in zip(query.outer.outputs, select.selects, types, strict=False):  # a position may follow
        if not can_show(kind):
            place = first_place(tree)
            raise ConstructRefused(
                f"{output.name} is of type {kind}, which an answer can not hold",
                {"construct": kind, "remedy": SHOW, **place},
            )
