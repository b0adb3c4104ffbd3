"""How many bytes a text has at most, anywhere in a tree of Plan.rows.

The front end knows it of every value (service/sql/expr/lengths.py) and refuses what grows too long; here it is read off
the tree again, since a text that is made of short parts, or of nothing but literals, costs what it is long.
"""

from collections.abc import Mapping

from sqlglot import exp

from service.engine.worst_case.shapes import RowShape
from service.engine.worst_case.trees import children, nodes

WRITTEN = 41  # bytes of a number or a moment that CAST writes
PATTERN = 16  # bytes for one character of a pattern that a moment is written by: the name of a day, a year BC
CHARACTER = 4  # bytes of a character at most
NUMBERS = (
    exp.Length, exp.StrPosition, exp.Predicate, exp.Connector, exp.Not, exp.Exists, exp.Extract, exp.Count, exp.Sum,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.IntDiv,
)  # fmt: skip

Lengths = Mapping[int, int]  # by id of the node


def text_lengths(tree: exp.Expression, shape: RowShape) -> Lengths:
    """Of every node of an expression over rows of that shape; 0 where it is no text."""
    found: dict[int, int] = {}
    for node in reversed(nodes(tree)):
        found[id(node)] = _length(node, shape, found)
    return found


def _length(node: exp.Expression, shape: RowShape, found: Lengths) -> int:
    if isinstance(node, exp.Column):
        facts = shape.columns.get((node.table, node.name))
        return 0 if facts is None else facts.text
    if isinstance(node, exp.Literal):
        return len(str(node.this).encode()) if node.is_string else 0
    if isinstance(node, NUMBERS):
        return 0
    if isinstance(node, exp.Cast):
        return max(WRITTEN, _of(node.this, found)) if node.to.this in exp.DataType.TEXT_TYPES else 0
    if isinstance(node, exp.TimeToStr):
        return PATTERN * len(str(node.args["format"].this))
    if isinstance(node, exp.Lower | exp.Upper):
        return _of(node.this, found) * 3 // 2
    if isinstance(node, exp.Substring | exp.Left | exp.Right):
        return min(_of(node.this, found), CHARACTER * _wanted(node))
    if isinstance(node, exp.Trim | exp.SplitPart | exp.Nullif | exp.Min | exp.Max):
        return _of(node.this, found)
    if isinstance(node, exp.Replace):
        return _replaced(node, found)
    if isinstance(node, exp.If):
        return max(_of(node.args.get("true"), found), _of(node.args.get("false"), found))
    if isinstance(node, exp.Case | exp.Coalesce):
        compared = node.args.get("this") if isinstance(node, exp.Case) else None  # CASE x WHEN …: not one of its values
        return max((_of(part, found) for part in children(node) if part is not compared), default=0)
    return sum(_of(part, found) for part in children(node))  # as long as everything that it is made of


def _of(node: object, found: Lengths) -> int:
    return found.get(id(node), 0)


def _wanted(node: exp.Expression) -> int:
    """Characters that a part of a text has at most, as they stand in the question."""
    wanted = node.args.get("length") if isinstance(node, exp.Substring) else node.expression
    return int(str(wanted.this)) if isinstance(wanted, exp.Literal) and not wanted.is_string else 10**6


def _replaced(node: exp.Expression, found: Lengths) -> int:
    """Parts that are found do not overlap, so at most as many as fit into the text beside each other."""
    whole, old, new = (_of(node.args.get(name), found) for name in ("this", "expression", "replacement"))
    return whole + whole // max(1, old) * max(0, new - old)
