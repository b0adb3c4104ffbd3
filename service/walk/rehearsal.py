"""The outer SQL tried before anything is charged: an error of type or name costs nothing.

What stands above a core is ordinary SQL, and only the scratch engine knows what fits what in it. So it is
asked before the charge, over made-up rows in tables that have the columns and types which the released
and public ones will have. Invariant S1 holds: a refusal here reads the request and the declarations, and
neither a row nor a file of the dataset. What depends on released values (a division, an overflow, a cast of a
text that is no number) can still only show once they are there.
"""

import hashlib
from collections import OrderedDict

from sqlglot import exp

from service.core.errors import ConstructRefused, TooBusy
from service.core.places import first_place
from service.core.plan import Query
from service.core.request import OWN_DIALECT
from service.core.schema import Schema, SqlType
from service.engine.base import Scratch, ScratchLost, ScratchRefused
from service.walk.answer_json import can_show
from service.walk.outer_sql import core_types, is_plain

SECONDS = 10.0
REMEMBERED = 1024
SHOW = "return numbers, text or dates; a span of time as DATE_DIFF('second', a, b)"

Tables = tuple[tuple[str, tuple[tuple[str, SqlType], ...]], ...]


class Rehearsal:
    """Tries outer SQL before the charge, and remembers what has passed: a dashboard asks the same again and again."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._passed: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def check(self, query: Query, schema: Schema, caller: str = "") -> None:
        """Raises ConstructRefused where the outer SQL could not run on any released values."""
        if is_plain(query):
            return
        try:
            types = self._types(query.outer.select, _tables(query, schema), caller)
        except ScratchLost:
            raise TooBusy("the SQL could not be checked now; ask again", {"retry_after_s": 1}) from None
        except ScratchRefused as refused:
            raise ConstructRefused(
                f"what is done with the aggregates does not fit: {refused.mistake}",
                {"construct": "outer SQL", "remedy": refused.remedy, **_shown(refused.place)},
            ) from None
        _check_outputs(query, types)

    def _types(self, select: exp.Expression, tables: Tables, caller: str) -> tuple[str, ...]:
        """Kept by a hash of the tree's text: trees and texts are large, and two that are written alike run alike."""
        written = repr((select.sql(dialect=OWN_DIALECT), tables))
        key = hashlib.sha256(written.encode()).digest()
        known = self._passed.get(key)
        if known is not None:
            self._passed.move_to_end(key)
            return known
        shapes = {name: dict(columns) for name, columns in tables}
        types = self._scratch.rehearse(select, shapes, SECONDS, caller=caller)
        self._passed[key] = types
        while len(self._passed) > REMEMBERED:
            self._passed.popitem(last=False)
        return types


def _tables(query: Query, schema: Schema) -> Tables:
    cores = [(f"core_{index}", tuple(core_types(plan).items())) for index, plan in enumerate(query.cores)]
    public = [
        (name, tuple((column.name, column.type) for column in schema.tables[name].columns.values()))
        for name in query.outer.public_tables
    ]
    return (*public, *cores)


def _shown(place: tuple[int, int] | None) -> dict[str, str | int]:
    return {} if place is None else {"line": place[0], "column": place[1]}


def _check_outputs(query: Query, types: tuple[str, ...]) -> None:
    select = query.outer.select
    assert isinstance(select, exp.Query)
    for output, tree, kind in zip(query.outer.outputs, select.selects, types, strict=False):  # a position may follow
        if not can_show(kind):
            raise ConstructRefused(
                f"{output.name} is of type {kind}, which an answer can not hold",
                {"construct": kind, "remedy": SHOW, **_shown(first_place(tree))},
            )
