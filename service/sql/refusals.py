"""Refusals of SQL: each says the construct, where it stands, and what to write instead.

Invariant S1: a refusal reads the query text and the schema, never a row.
"""

from sqlglot import exp

from service.core.errors import BoundsMissing, ConstructRefused


def place(node: exp.Expr | None) -> dict[str, str | int]:
    """Line and column (both from 1) of the first token below `node` that the tokenizer marked."""
    if node is None:
        return {}
    best: dict[str, int] | None = None
    for part in node.walk():
        meta = part.meta
        if "start" in meta and (best is None or meta["start"] < best["start"]):
            best = {"start": meta["start"], "end": meta["end"], "line": meta["line"], "col": meta["col"]}
    if best is None:
        return place(node.parent)
    # sqlglot marks where a token ends; where it starts is what a reader looks for.
    return {"line": best["line"], "column": max(1, best["col"] - (best["end"] - best["start"]))}


def spelled(node: exp.Expr) -> str:
    """What a node is called in SQL, as near to what was written as the parser keeps."""
    if isinstance(node, exp.Anonymous):
        return str(node.this)[:60]
    if isinstance(node, exp.Command):
        return str(node.this)[:60].upper()
    return str(node.sql_name() if isinstance(node, exp.Func) else type(node).key.upper())


def refused(detail: str, node: exp.Expr | None, *, construct: str, remedy: str) -> ConstructRefused:
    """A refusal that points at `node`."""
    return ConstructRefused(detail, {"construct": construct, "remedy": remedy, **place(node)})


def missing_bounds(
    columns: frozenset[str], node: exp.Expr | None, *, construct: str, numeric: bool = True
) -> BoundsMissing:
    """The refusal of an aggregate without a finite range: names the columns that lack one, and the field that gives it.

    Days and moments are coded when they are imported, so only a declaration gives them a range.
    """
    names = ", ".join(sorted(columns)) or "this expression"
    if columns and not numeric:
        remedy = f"have an admin declare bounds for {names}; a request can only narrow those of dates"
    elif columns:
        example = sorted(columns)[0]
        field = f'"bounds": {{"columns": {{"{example}": [low, high]}}}}'
        remedy = f"give bounds in the request: {field}, or have an admin declare them"
    else:
        remedy = "clamp it in the query: LEAST(GREATEST(x, low), high) with literal bounds"
    return BoundsMissing(
        f"{construct} needs a finite range, and none is known for {names}",
        {"construct": construct, "columns": names, "remedy": remedy, **place(node)},
    )
