"""Names, texts and values in SQL text: the fence against injection.

Whatever is not one of our own templates enters a statement through one of these functions, or as a tree of ours that
sqlglot writes (emit/spelling.py), and nowhere else is anything put between quotes. tests/unit/engine/test_quoting.py
hands them hostile names and texts.
"""

from datetime import date, datetime

from service.core.schema import Scalar, SqlType


def quoted(name: str) -> str:
    """An identifier."""
    assert "\0" not in name
    return '"' + name.replace('"', '""') + '"'


def string_literal(value: str) -> str:
    """A text, whatever is in it."""
    return "'" + value.replace("'", "''") + "'"


def exact_literal(value: Scalar, kind: SqlType) -> str:
    """A public value as a literal of exactly `kind`, with CAST: the statement fails if it is none of that type.

    For values that a plan has already read as this type; that one is lost in silence would be worse than a failure.
    """
    if value is None:
        spelled = "NULL"
    elif isinstance(value, bool):
        spelled = "TRUE" if value else "FALSE"
    elif isinstance(value, datetime):
        spelled = string_literal(value.isoformat(sep=" "))
    elif isinstance(value, int):
        spelled = str(value)
    else:
        spelled = string_literal(value.isoformat() if isinstance(value, date) else str(value))
    return f"CAST({spelled} AS {kind})"


def tried_literal(value: Scalar, kind: SqlType) -> str:
    """A value as a literal of `kind`, with TRY_CAST: one that is none of that type becomes NULL.

    For declared values that are compared with what a file holds: a value that no row can have matches none.
    """
    if value is None:
        return "NULL"
    return f"TRY_CAST({string_literal(value.isoformat() if isinstance(value, date) else str(value))} AS {kind})"
