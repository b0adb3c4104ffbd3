"""Where the parts of the rebuilt outer SQL were written, so that an error of the scratch engine can be told there.

in   a tree of ours whose columns, literals and functions remember the analyst's line and column
out  its text with a comment and a line break behind each of them: the number of a line is then a place

The text that runs has none of this. A marked text is only made once an error is known.
"""

import re

from sqlglot import exp

LINE, COLUMN = "written_line", "written_column"
MARK = re.compile(r"/\* (\d+):(\d+)$")


def remember(made: exp.Expression, written: exp.Expression) -> exp.Expression:
    """`made` stands for what was `written`; a part that knows its place already keeps it."""
    source = written.this if isinstance(written, exp.Column | exp.Interval) else written
    if "start" in source.meta and LINE not in made.meta:
        made.meta[LINE] = source.meta["line"]
        made.meta[COLUMN] = max(1, source.meta["col"] - (source.meta["end"] - source.meta["start"]))
    return made


def marked(tree: exp.Expression) -> str:
    """The text of a tree, one line for each place in it."""
    copy = tree.copy()
    for node in list(copy.walk()):
        if LINE in node.meta:
            node.comments = [f" {node.meta[LINE]}:{node.meta[COLUMN]}\n"]
    return copy.sql(dialect="duckdb")


def written_at(text: str, line: int | None) -> dict[str, str | int]:
    """Line and column, in the analyst's text, of a line of a marked one: of the place that ends it."""
    lines = text.split("\n")
    for candidate in lines[line - 1 :: -1] if line is not None and line <= len(lines) else []:
        found = MARK.search(candidate)
        if found is not None:
            return {"line": int(found[1]), "column": int(found[2])}
    return {}


def first_place(tree: exp.Expr) -> dict[str, str | int]:
    """Where the first part of a tree was written, if any part remembers it."""
    known = [(node.meta[LINE], node.meta[COLUMN]) for node in tree.walk() if LINE in node.meta]
    return {"line": min(known)[0], "column": min(known)[1]} if known else {}
