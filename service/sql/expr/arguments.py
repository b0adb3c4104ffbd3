"""What the functions of the tables share: arguments that must be literals, and their lines in docs/supported-sql.md."""

from sqlglot import exp

from service.sql.expr.compiler import Compiler
from service.sql.refusals import refused

SUPPORTED: dict[str, list[str]] = {"numbers": [], "text": [], "dates": []}


def supported(group: str, *lines: str) -> None:
    """Registers lines that docs/supported-sql.md must print; a test compares the page with them."""
    SUPPORTED[group] += lines


def whole_literal(node: exp.Expression | None, c: Compiler, *, low: int, high: int) -> int:
    """An argument that must be a whole literal."""
    value = c.value(node) if node is not None else None
    found = value.constant[0] if value is not None and value.constant is not None else None
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise refused(
            f"a whole literal from {low} to {high} is needed here",
            node,
            construct="argument",
            remedy="write a number, not a column or an expression",
        )
    return found


def text_literal(node: exp.Expression | None, c: Compiler, *, longest: int = 200) -> str:
    """An argument that must be a text literal."""
    value = c.value(node) if node is not None else None
    found = value.constant[0] if value is not None and value.constant is not None else None
    if not isinstance(found, str) or len(found) > longest:
        raise refused(
            "a text literal is needed here", node, construct="argument", remedy="write a 'literal', not a column"
        )
    return found
