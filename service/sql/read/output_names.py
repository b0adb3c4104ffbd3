"""What outputs and expressions are called: names as plain SQL gives them, and the analyst's own text for messages."""

from collections.abc import Iterable

from sqlglot import exp

from service.core.request import OWN_DIALECT


def output_names(nodes: Iterable[exp.Expression]) -> list[str]:
    """Names of outputs as plain SQL gives them: the alias, the column, or the text; a suffix makes them unique."""
    found: list[str] = []
    for node in nodes:
        label = output_name(node)
        chosen, number = label, 0
        while chosen.lower() in (name.lower() for name in found):
            number += 1
            chosen = f"{label}_{number}"
        found.append(chosen)
    return found


def output_name(node: exp.Expression) -> str:
    """The name of one output, before it is made unique."""
    if isinstance(node, exp.Alias):
        return str(node.alias)[:120]
    if isinstance(node, exp.Column):
        return str(node.name)[:120]
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return str(node.sql(dialect=OWN_DIALECT, normalize_functions="lower", comments=False))[:120]


def sql_as_written(node: exp.Expression) -> str:
    """An expression as the analyst wrote it, for labels and messages."""
    return str(node.sql(dialect=OWN_DIALECT, comments=False))[:120]
