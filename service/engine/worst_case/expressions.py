"""What an expression costs on a row at worst, and how many values it can have."""

from sqlglot import exp

from service.engine.worst_case.lengths import Lengths, text_lengths
from service.engine.worst_case.loads import Load, load
from service.engine.worst_case.shapes import ColumnFacts, RowShape, text_width
from service.engine.worst_case.trees import nodes

PARTS = {  # of a moment: so many values each, NULL included
    "MONTH": 13, "QUARTER": 5, "DAY": 32, "DAYOFWEEK": 8, "DOW": 8, "ISODOW": 8, "HOUR": 25, "MINUTE": 61,
    "SECOND": 62, "WEEK": 54, "DOY": 367, "DAYOFYEAR": 367,
}  # fmt: skip
# Of what the dearest function on texts takes for a byte (loads.py): measured on the texts that are worst for each.
TEXTS: dict[type[exp.Expression], float] = {
    exp.Length: 0.1, exp.Substring: 0.1, exp.Left: 0.1, exp.Right: 0.1, exp.DPipe: 0.1, exp.Concat: 0.1,
    exp.StartsWith: 0.1, exp.EndsWith: 0.1, exp.Lower: 0.6, exp.Upper: 0.6, exp.Trim: 0.6, exp.Contains: 0.6,
    exp.StrPosition: 0.6, exp.Like: 0.6, exp.ILike: 0.6, exp.Replace: 1.0, exp.SplitPart: 1.0,
}  # fmt: skip
STEPPED = 0.12  # of the same, for every byte of a pattern that is tried at every place: ILIKE, and LIKE with a _
CHEAP = (exp.Connector, exp.Case, exp.If, exp.Coalesce, exp.Abs, exp.Cast, exp.AggFunc, exp.Nullif, exp.Exists)
LEAVES = (exp.Column, exp.Literal, exp.Identifier, exp.DataType, exp.Var, exp.Boolean, exp.Null, exp.Paren, exp.Alias)
MANY_VALUES = 10**12  # as many as any table has rows
BRANCH = 3  # a branch of CASE costs so many other nodes: rows are divided, and put together again
WRITES = (exp.TimeToStr, exp.Interval)  # functions that take as long as one that writes a text


def conditions_of(tree: exp.Expression | None) -> list[exp.Expression]:
    if tree is None:
        return []
    if isinstance(tree, exp.Paren):
        return conditions_of(tree.this)
    if isinstance(tree, exp.And):
        return conditions_of(tree.this) + conditions_of(tree.expression)
    return [tree]


def subqueries(tree: exp.Expression) -> list[exp.Expression]:
    """The EXISTS of an expression, and what its IN lists select from."""
    return [node for node in nodes(tree) if isinstance(node, exp.Query | exp.Exists)]


def evaluated(tree: exp.Expression, rows: int, shape: RowShape) -> Load:
    """The expression on so many rows of `shape`, its subqueries left out."""
    compute = part = call = fail = listed = copied = 0
    texts = 0.0
    lengths = text_lengths(tree, shape)
    for node in nodes(tree):
        copied += lengths[id(node)] if isinstance(node, exp.Column | exp.DPipe | exp.Concat | exp.Cast) else 0
        if isinstance(node, LEAVES):
            continue
        compute += BRANCH if isinstance(node, exp.If) else 1
        if type(node) in TEXTS:
            texts += _share(node) * _read_bytes(node, lengths)
            part += 1
        elif isinstance(node, exp.In):
            listed += 1
            compute += min(8, len(node.expressions))
        elif isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            compute -= 1  # a constant
        elif isinstance(node, exp.Cast):
            compute += 1
            call += int(node.to.this in exp.DataType.TEXT_TYPES)
            fail += int(isinstance(node, exp.TryCast))
        elif isinstance(node, WRITES):
            call += 1
        elif isinstance(node, exp.Func | exp.Pow) and not isinstance(node, CHEAP):
            part += 1
    return load(
        compute=rows * compute,
        part=rows * part,
        call=rows * call,
        fail=rows * fail,
        text=rows * texts,
        copy=rows * copied,
        probe=rows * listed,
    )


def _share(node: exp.Expression) -> float:
    """What a function on texts takes for a byte. A pattern is tried at every place, byte by byte, where it has a _ or
    letters of either case; without them the engine searches for its parts, which takes no longer for longer ones."""
    share = TEXTS[type(node)]
    if isinstance(node, exp.Like | exp.ILike):
        pattern = str(node.expression.this)
        if isinstance(node, exp.ILike) or "_" in pattern:
            return share + STEPPED * len(pattern.encode())
    return share


def _read_bytes(node: exp.Expression, lengths: Lengths) -> int:
    """Bytes that a function on texts goes through: of its text, or of all that it joins."""
    if isinstance(node, exp.DPipe | exp.Concat):
        return lengths[id(node)]
    return lengths.get(id(node.this), 0)


def column_facts(column: exp.Column, shape: RowShape) -> ColumnFacts | None:
    return shape.columns.get((column.table, column.name))


def described(tree: exp.Expression, shape: RowShape) -> ColumnFacts:
    """What is known of a computed column of so many rows."""
    if isinstance(tree, exp.Column):
        return column_facts(tree, shape) or ColumnFacts(shape.rows)
    read = [column_facts(column, shape) for column in nodes(tree) if isinstance(column, exp.Column)]
    of_unit = bool(read) and all(facts is not None and facts.of_unit for facts in read)
    of_unit = of_unit and not subqueries(tree) and tree.find(exp.AggFunc) is None
    longest = text_lengths(tree, shape)[id(tree)]
    return ColumnFacts(
        shape.rows, values_of(tree, shape), of_unit=of_unit, width=max(16, text_width(longest)), text=longest
    )


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
