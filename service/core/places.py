"""Where the parts of a rebuilt tree were written: an error that is found in the tree is told in the analyst's own text.

in   columns, literals and functions as the parser placed them
out  a tree of ours whose nodes remember that line and column
"""

from sqlglot import exp

LINE, COLUMN = "written_line", "written_column"


def remember(made: exp.Expression, written: exp.Expression) -> exp.Expression:
    """`made` stands for what was `written`; a part that knows its place already keeps it."""
    source = written.this if isinstance(written, exp.Column | exp.Interval) else written
    if "start" in source.meta and LINE not in made.meta:
        made.meta[LINE] = source.meta["line"]
        made.meta[COLUMN] = max(1, source.meta["col"] - (source.meta["end"] - source.meta["start"]))
    return made


def place_of(node: exp.Expr) -> tuple[int, int] | None:
    """Line and column of one node, if it remembers them."""
    return (node.meta[LINE], node.meta[COLUMN]) if LINE in node.meta else None


def first_place(tree: exp.Expr) -> tuple[int, int] | None:
    """Where the first part of a tree was written, if any part remembers it."""
    return min((place for node in tree.walk() if (place := place_of(node)) is not None), default=None)
