"""Walks over the trees of a plan: loops of our own, since estimates walk them all and the library's are slow."""

from sqlglot import exp

CLOSED = (exp.Query, exp.Exists, exp.Column, exp.Literal, exp.DataType)


def nodes(tree: exp.Expression) -> list[exp.Expression]:
    """The nodes of an expression, without what is inside its subqueries, its names and its types. A node comes before
    those that it is made of."""
    found: list[exp.Expression] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, CLOSED):
            waiting.extend(children(node))
    return found


def columns_read(tree: exp.Expression) -> set[tuple[str, str]]:
    """(source, column) of everything that is read anywhere in a query, its subqueries included."""
    found: set[tuple[str, str]] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Column):
            found.add((node.table, node.name))
        elif not isinstance(node, exp.Literal | exp.DataType):
            waiting.extend(children(node))
    return found


def children(node: exp.Expression) -> list[exp.Expression]:
    found: list[exp.Expression] = []
    for value in node.args.values():
        if isinstance(value, list):
            found.extend(part for part in value if isinstance(part, exp.Expression))
        elif isinstance(value, exp.Expression):
            found.append(value)
    return found
