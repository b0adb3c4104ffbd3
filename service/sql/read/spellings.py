"""Which nodes of a tree mean which aggregate: the spellings of core/aggregates.py as sqlglot's classes.

A function that sqlglot has no class for gets one here, so that from parsing on an aggregate is told by its class.
"""

from sqlglot import exp

from service.core.aggregates import AGGREGATES, AggregateSpec

Node = type[exp.Expression]


def _class_of(name: str) -> Node:
    return type(name.title(), (exp.Expression, exp.AggFunc), {"_sql_names": [name], "key": name.lower()})


def _known(name: str) -> Node | None:
    found = exp.FUNCTION_BY_NAME.get(name)
    assert found is None or issubclass(found, exp.Expression)
    return found


SPELLED = {name: spec for spec in AGGREGATES.values() for name in spec.spellings}
OWN: dict[str, Node] = {name: _class_of(name) for name in SPELLED if _known(name) is None}
SIMPLE: dict[Node, AggregateSpec] = {_known(name) or OWN[name]: spec for name, spec in SPELLED.items()}


def name_aggregates(tree: exp.Expression) -> None:
    """Give aggregates that the parser left anonymous the class of their own, in place."""
    for node in [found for found in tree.find_all(exp.Anonymous) if isinstance(found.this, str)]:
        made = OWN.get(node.this.upper())
        if made is not None and len(node.expressions) == 1:
            replaced = made(this=node.expressions[0])
            replaced.meta.update(node.meta)
            node.replace(replaced)
