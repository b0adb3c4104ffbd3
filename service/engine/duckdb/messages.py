"""What DuckDB says of outer SQL, in our words: what is wrong, what to do, and where the analyst wrote it.

The one place that reads DuckDB's messages. They speak of the SQL, of types, and of made-up or released values only.
"""

import re

from sqlglot import exp

from service.core.places import place_of
from service.engine.base import ScratchRefused
from service.engine.emit.spelling import DIALECT

LONGEST_MESSAGE = 500
LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
MARK = re.compile(r"/\* (\d+):(\d+)$")
NO_SUCH_CAST = "Unimplemented type for cast"  # whatever the value

CAST = "make the types fit, with CAST(x AS …) where they differ"
REMEDIES = {
    "GROUP BY clause": "put it into GROUP BY, or aggregate it",
    "Subquery returns": "select one column in the subquery",
    "format specifier": "use the codes of strftime: %Y, %m, %d, %H, %M, %S",
}


class DuckDBRefused(ScratchRefused):
    """A message of the database; `line` is the one that it names, of the text that was run."""

    def __init__(self, message: str) -> None:
        shown, named = message[:LONGEST_MESSAGE], LINE.search(message)
        mistake = _first_line(shown)
        remedy = next((remedy for words, remedy in REMEDIES.items() if words in mistake), CAST)
        super().__init__(shown, mistake=mistake, remedy=remedy)
        self.line = int(named[1]) if named else None


def _first_line(message: str) -> str:
    """Without the kind of error before it, and the list of candidates behind."""
    return message.split("\n", 1)[0].partition(" Error: ")[2] or message.split("\n", 1)[0]


def fails_in_any_case(failed_cast: DuckDBRefused, select: exp.Expression) -> bool:
    """Is a cast that failed on a made-up row the SQL's own fault? It is if there is no such cast, or if it is about a
    literal."""
    said = failed_cast.mistake
    texts = {str(part.this) for part in select.find_all(exp.Literal) if part.is_string and part.this}
    return NO_SUCH_CAST in said or any(f"'{text}'" in said or f'"{text}"' in said for text in texts)


# --- Places ---


def marked(select: exp.Expression) -> str:
    """The text of a tree with a comment and a line break behind each part that remembers its place: the number of a
    line is then a place. Only made once an error is known; the text that runs has none of this."""
    copy = select.copy()
    for node in list(copy.walk()):
        place = place_of(node)
        if place is not None:
            node.comments = [f" {place[0]}:{place[1]}\n"]
    return copy.sql(dialect=DIALECT)


def written_at(text: str, line: int | None) -> tuple[int, int] | None:
    """Line and column, in the analyst's text, of a line of a marked one: of the place that ends it."""
    lines = text.split("\n")
    for candidate in lines[line - 1 :: -1] if line is not None and line <= len(lines) else []:
        found = MARK.search(candidate)
        if found is not None:
            return int(found[1]), int(found[2])
    return None
