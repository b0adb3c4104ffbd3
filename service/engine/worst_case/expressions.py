"""What an expression costs on a row at worst, and how many values it can have."""

from sqlglot import exp

from service.engine.worst_case.loads import Load, load
from service.engine.worst_case.shapes import ColumnFacts, RowShape

PARTS = {  # of a moment: so many values each, NULL included
    "MONTH": 13, "QUARTER": 5, "DAY": 32, "DAYOFWEEK": 8, "DOW": 8, "ISODOW": 8, "HOUR": 25, "MINUTE": 61,
    "SECOND": 62, "WEEK": 54, "DOY": 367, "DAYOFYEAR": 367,
}  # fmt: skip
TEXTS = (
    exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Replace, exp.DPipe, exp.Concat,
    exp.StartsWith, exp.EndsWith, exp.Contains, exp.StrPosition, exp.SplitPart, exp.Like, exp.ILike,
)  # fmt: skip
CHEAP = (exp.Connector, exp.Case, exp.If, exp.Coalesce, exp.Abs, exp.Cast, exp.AggFunc, exp.Nullif, exp.Exists)
LEAVES = (exp.Column, exp.Literal, exp.Identifier, exp.DataType, exp.Var, exp.Boolean, exp.Null, exp.Paren, exp.Alias)
NUMBERS_OF_TEXT = (exp.Length, exp.StrPosition, exp.Predicate)
CLOSED = (exp.Query, exp.Exists, exp.Column, exp.Literal, exp.DataType)
MANY_VALUES = 10**12  # as many as any table has rows
BRANCH = 3  # a branch of CASE costs so many other nodes: rows are divided, and put together again
TEXT_WIDTH = 17  # wider columns are texts: numbers have at most 16 bytes


def conditions_of(tree: exp.Expression | None) -> list[exp.Expression]:
    if tree is None:
        return []
    if isinstance(tree, exp.Paren):
        return conditions_of(tree.this)
    if isinstance(tree, exp.And):
        return conditions_of(tree.this) + conditions_of(tree.expression)
    return [tree]


def nodes(tree: exp.Expression) -> list[exp.Expression]:
    """The nodes of an expression, without what is inside its subqueries, its names and its types.

    A loop of our own: estimates walk every tree, and this is many times faster than the library's."""
    found: list[exp.Expression] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, CLOSED):
            _push_children(node, waiting)
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
            _push_children(node, waiting)
    return found


def _push_children(node: exp.Expression, waiting: list[exp.Expression]) -> None:
    for value in node.args.values():
        if isinstance(value, list):
            waiting.extend(part for part in value if isinstance(part, exp.Expression))
        elif isinstance(value, exp.Expression):
            waiting.append(value)


def subqueries(tree: exp.Expression) -> list[exp.Expression]:
    """The EXISTS of an expression, and what its IN lists select from."""
    return [node for node in nodes(tree) if isinstance(node, exp.Query | exp.Exists)]


def evaluated(tree: exp.Expression, rows: int, shape: RowShape) -> Load:
    """The expression on so many rows of `shape`, its subqueries left out."""
    compute = call = texts = listed = 0
    width = text_width(tree, shape)
    for node in nodes(tree):
        if isinstance(node, LEAVES):
            continue
        compute += BRANCH if isinstance(node, exp.If) else 1
        if isinstance(node, TEXTS):
            wild = str(node.expression.this).count("%") if isinstance(node, exp.Like | exp.ILike) else 0
            texts += 1 + wild
            call += 1
        elif isinstance(node, exp.In):
            listed += 1
            compute += min(8, len(node.expressions))
        elif isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            compute -= 1  # a constant
        elif isinstance(node, exp.Cast):
            compute += 1
            call += int(node.to.this in exp.DataType.TEXT_TYPES)
        elif isinstance(node, exp.Func | exp.Pow | exp.Interval) and not isinstance(node, CHEAP):
            call += 1
    return load(
        compute=rows * compute, call=rows * call, text=rows * texts * width, copy=rows * width, probe=rows * listed
    )


def text_width(tree: exp.Expression, shape: RowShape) -> int:
    """Bytes of all texts that an expression is made of."""
    columns = literals = 0
    for node in nodes(tree):
        if isinstance(node, exp.Column):
            facts = column_facts(node, shape)
            columns += facts.width - 16 if facts is not None and facts.width >= TEXT_WIDTH else 0
        elif isinstance(node, exp.Literal) and node.is_string:
            literals += 4 * len(node.this)
    return columns + literals if columns else 0  # moments and numbers are written as texts, too


def column_facts(column: exp.Column, shape: RowShape) -> ColumnFacts | None:
    return shape.columns.get((column.table, column.name))


def described(tree: exp.Expression, shape: RowShape) -> ColumnFacts:
    """What is known of a computed column of so many rows."""
    if isinstance(tree, exp.Column):
        return column_facts(tree, shape) or ColumnFacts(shape.rows)
    read = [column_facts(column, shape) for column in nodes(tree) if isinstance(column, exp.Column)]
    of_unit = bool(read) and all(facts is not None and facts.of_unit for facts in read)
    of_unit = of_unit and not subqueries(tree) and tree.find(exp.AggFunc) is None
    width = 8
    if not isinstance(tree, NUMBERS_OF_TEXT):
        width = max(8, 16 + text_width(tree, shape)) if text_width(tree, shape) else 16
    return ColumnFacts(shape.rows, values_of(tree, shape), of_unit=of_unit, width=width)


def values_of(tree: exp.Expression, shape: RowShape) -> int | None:
    """So many different values, NULL included; None: not known. An expression is a function of the columns that it
    reads, so it has no more values than they have combinations."""
    if isinstance(tree, exp.Alias | exp.Paren):
        return values_of(tree.this, shape)
    if isinstance(tree, exp.Predicate | exp.Connector | exp.Not | exp.Exists | exp.Boolean):
        return 3
    if tree.find(exp.AggFunc) is not None or subqueries(tree):
        return None
    if isinstance(tree, exp.Case):
        branches = [part.args["true"] for part in tree.args["ifs"]] + [tree.args.get("default") or exp.Null()]
        return _total(branches, shape)
    if isinstance(tree, exp.Extract) and str(tree.this.this).upper() in PARTS:
        return PARTS[str(tree.this.this).upper()]
    read = {(node.table, node.name): node for node in nodes(tree) if isinstance(node, exp.Column)}
    combinations = 1
    for column in read.values():
        facts = column_facts(column, shape)
        if facts is None or facts.values is None:
            return None
        combinations *= facts.values
        if combinations > MANY_VALUES:
            return None
    return combinations + 1


def _total(branches: list[exp.Expression], shape: RowShape) -> int | None:
    found = [values_of(branch, shape) for branch in branches]
    return None if any(values is None for values in found) else 1 + sum(values or 0 for values in found)
