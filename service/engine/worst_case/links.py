"""Which sources of a query are tied to each other, by which equalities."""

from sqlglot import exp

from service.engine.worst_case.expressions import subqueries
from service.engine.worst_case.shapes import Link, RowShape, Side
from service.engine.worst_case.trees import columns_read, nodes


def links_of(conditions: list[exp.Expression]) -> list[Link]:
    return [Link(_side(part.this), _side(part.expression)) for part in conditions if isinstance(part, exp.EQ)]


def _side(tree: exp.Expression) -> Side:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    column = (tree.table, tree.name) if isinstance(tree, exp.Column) else None
    return Side(frozenset() if subqueries(tree) else aliases_read(tree), column)


def aliases_read(tree: exp.Expression) -> frozenset[str]:
    return frozenset(node.table for node in nodes(tree) if isinstance(node, exp.Column))


def all_on_unit(sources: list[RowShape], links: list[Link]) -> bool:
    """Are all private sources tied to each other by equalities of the unit?"""
    private = [source for source in sources if source.private]
    if not private:
        return False
    tied, waiting = [private[0]], private[1:]
    while waiting:
        found = next(
            (
                part
                for part in waiting
                if any(link.of_units and link.onto(other, part) is not None for link in links for other in tied)
            ),
            None,
        )
        if found is None:
            return False
        tied.append(found)
        waiting = [part for part in waiting if part is not found]
    return True


def read_from_outside(tree: exp.Expression, inside: RowShape) -> set[tuple[str, str]]:
    """Columns that a subquery reads of the rows around it."""
    return {(alias, name) for alias, name in columns_read(tree) if alias not in inside.aliases}
