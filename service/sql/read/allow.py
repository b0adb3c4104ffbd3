"""The allow-list: node classes, and every argument a node may carry.

in   the parsed tree
out  nothing; raises on the first node or argument that isn't listed
Why  `SELECT … INTO t` has the class Select and makes a table; LIKE … has a hidden `negate`. So the class alone
     proves nothing: each non-empty argument must be known too. Invariant S3: a tree that passes holds only
     listed nodes, and so do the trees that we emit (ROWS and OUTER, checked again before they leave).
"""

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.sql.read.spellings import OWN, SIMPLE
from service.sql.refusals import refused, spelled

A = frozenset

ONE = A({"this"})
TWO = A({"this", "expression"})
MANY = A({"this", "expressions"})

# What an analyst may write, with the arguments that may be filled.
QUERY: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: A({"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
                   "distinct", "with_", "qualify", "windows"}),
    exp.Union: A({"this", "expression", "distinct", "order", "limit", "offset", "with_"}),
    exp.With: A({"expressions"}),
    exp.CTE: A({"this", "alias", "materialized"}),
    exp.Subquery: A({"this", "alias", "with_"}),
    exp.From: ONE,
    exp.Table: A({"this", "alias"}),
    exp.TableAlias: A({"this", "columns"}),
    exp.Join: A({"this", "on", "using", "side", "kind"}),
    exp.Where: ONE,
    exp.Group: A({"expressions", "all"}),
    exp.Having: ONE,
    exp.Qualify: ONE,
    exp.Order: A({"this", "expressions"}),
    exp.Ordered: A({"this", "desc", "nulls_first"}),
    exp.Limit: A({"expression"}),
    exp.Offset: A({"expression"}),
    exp.Distinct: A({"expressions"}),
    exp.Star: A({"except_"}),
    exp.Alias: A({"this", "alias"}),
    exp.Column: A({"this", "table"}),
    exp.Identifier: A({"this", "quoted"}),
}  # fmt: skip

SCALAR: dict[type[exp.Expr], frozenset[str]] = {
    exp.Literal: A({"this", "is_string"}),
    exp.Null: A(),
    exp.Boolean: ONE,
    exp.Paren: ONE,
    exp.Neg: ONE,
    exp.Not: ONE,
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
                     exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Is), TWO),
    exp.Div: A({"this", "expression", "typed", "safe"}),
    exp.Like: A({"this", "expression", "negate"}),
    exp.ILike: A({"this", "expression", "negate"}),
    exp.Between: A({"this", "low", "high"}),
    exp.In: A({"this", "expressions", "query"}),
    exp.Exists: ONE,
    exp.Case: A({"this", "ifs", "default"}),
    exp.If: A({"this", "true", "false"}),
    exp.Coalesce: A({"this", "expressions", "is_nvl", "is_null"}),
    exp.Nullif: TWO,
    exp.Cast: A({"this", "to", "safe", "_type"}),
    exp.TryCast: A({"this", "to", "safe", "_type", "requires_string"}),
    exp.DataType: A({"this", "expressions", "nested"}),
    exp.DataTypeParam: ONE,
    exp.Interval: A({"this", "unit"}),
    exp.Var: ONE,
    **dict.fromkeys((exp.Abs, exp.Sign, exp.Floor, exp.Ceil, exp.Trunc, exp.Sqrt, exp.Ln, exp.Exp), ONE),
    exp.Round: A({"this", "decimals"}),
    exp.Log: TWO,
    exp.Pow: TWO,
    exp.Greatest: A({"this", "expressions", "ignore_nulls"}),
    exp.Least: A({"this", "expressions", "ignore_nulls"}),
    exp.IsNan: ONE,
    exp.Lower: ONE, exp.Upper: ONE, exp.Length: ONE,
    exp.Trim: A({"this", "position"}),
    exp.Substring: A({"this", "start", "length"}),
    exp.Left: TWO, exp.Right: TWO,
    exp.Replace: A({"this", "expression", "replacement"}),
    exp.DPipe: A({"this", "expression", "safe"}),
    exp.Concat: A({"expressions", "safe", "coalesce"}),
    exp.StartsWith: TWO, exp.EndsWith: TWO, exp.Contains: TWO,
    exp.StrPosition: A({"this", "substr"}),
    exp.SplitPart: A({"this", "delimiter", "part_index"}),
    exp.Extract: TWO,
    **dict.fromkeys((exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.Hour, exp.Minute,
                     exp.Second, exp.TimeToUnix), ONE),
    exp.TimestampTrunc: A({"this", "unit"}),
    exp.DateTrunc: A({"this", "unit", "unabbreviate", "input_type_preserved"}),
    exp.DateDiff: A({"this", "expression", "unit", "date_part_boundary"}),
    exp.TimeToStr: A({"this", "format"}),
    exp.Anonymous: MANY,  # only the names that service/sql/expr/dates.py knows
}  # fmt: skip

AGGREGATE: dict[type[exp.Expr], frozenset[str]] = {
    exp.Count: A({"this", "big_int"}),
    exp.CountIf: ONE,
    **dict.fromkeys(SIMPLE, ONE),
    exp.Median: ONE, exp.Mode: ONE,
    exp.PercentileCont: TWO, exp.PercentileDisc: TWO,
    exp.Quantile: A({"this", "quantile"}),
    exp.ApproxQuantile: A({"this", "quantile"}),
    exp.ApproxDistinct: ONE,
    exp.Filter: TWO,
    exp.WithinGroup: TWO,
}  # fmt: skip

# Over released groups only: they never meet a private row.
WINDOW: dict[type[exp.Expr], frozenset[str]] = {
    exp.Window: A({"this", "partition_by", "order", "spec", "over", "alias"}),
    exp.WindowSpec: A({"kind", "start", "start_side", "end", "end_side"}),
    exp.RowNumber: A(), exp.Rank: A(), exp.DenseRank: A(), exp.PercentRank: A(), exp.CumeDist: A(),
    exp.Ntile: ONE,
    exp.Lag: A({"this", "offset", "default"}),
    exp.Lead: A({"this", "offset", "default"}),
    exp.FirstValue: ONE, exp.LastValue: ONE,
}  # fmt: skip

ALLOWED = {**QUERY, **SCALAR, **AGGREGATE, **WINDOW}

# What may stand in a tree that we emit: over private rows, and over released values.
PER_UNIT = (exp.Count, exp.Sum, exp.Min, exp.Max)  # the aggregates of rows/per_unit.py
NOWHERE = (exp.Anonymous, exp.With, exp.CTE, *OWN.values())
OUTER = {kind: arguments for kind, arguments in ALLOWED.items() if kind not in NOWHERE}
ROWS = {
    kind: arguments
    for kind, arguments in OUTER.items()
    if (kind not in AGGREGATE or kind in PER_UNIT)
    and kind not in (*WINDOW, exp.Star, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Qualify, exp.Having)
}

REMEDIES: dict[str, str] = {
    "Into": "drop INTO: answers are returned, never stored",
    "Lock": "drop FOR UPDATE",
    "CurrentDate": "write the date as a literal: DATE '2026-01-31'",
    "CurrentTimestamp": "write the moment as a literal: TIMESTAMP '2026-01-31 12:00:00'",
    "Rollup": "ask one query per level of grouping",
    "Cube": "ask one query per level of grouping",
    "GroupingSets": "ask one query per level of grouping",
    "Tuple": "compare one column at a time",
    "TableSample": "drop the sample: the answer is computed over all rows",
    "Lateral": "join a subquery instead",
    "ArrayAgg": "use COUNT, SUM, AVG or a quantile: lists of rows are never answered",
    "GroupConcat": "use COUNT(DISTINCT x): lists of values are never answered",
    "AnyValue": "use MIN or MAX",
    "First": "use MIN or MAX",
    "LogicalOr": "write COUNT_IF(condition) and compare it with 0",
    "LogicalAnd": "write COUNT_IF(condition) and compare it with COUNT(*)",
    "RegexpLike": "use LIKE, STARTS_WITH or CONTAINS",
    "Placeholder": "write literals into the query",
    "Parameter": "write literals into the query",
    "Intersect": "use a semi-join: unit IN (SELECT unit …)",
    "Except": "use an anti-join: unit NOT IN (SELECT unit …)",
}
NOW = (
    "now",
    "today",
    "current_timestamp",
    "current_date",
    "getdate",
    "sysdate",
    "localtimestamp",
    "current_localtimestamp",
)
KNOWN_ANONYMOUS = ("date_part", "datepart")
GENERAL = "see docs/supported-sql.md for what is answered, and rewrite this part"


def check(tree: exp.Expression) -> None:
    """Refuses what is not listed; walks the whole tree, in the order in which it was written."""
    if not isinstance(tree, exp.Select | exp.Union | exp.Subquery):
        raise refused("only SELECT is answered", tree, construct=spelled(tree), remedy="write one SELECT statement")
    for node in tree.walk():
        arguments = ALLOWED.get(type(node))
        if arguments is None:
            raise _refuse_node(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() not in KNOWN_ANONYMOUS:
            raise _refuse_node(node)
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            raise _refuse_node(node.this if isinstance(node.this, exp.Expression) else node)
        for key, value in node.args.items():
            if key not in arguments and _filled(value):
                raise _refuse_argument(node, key, value)


def unlisted(tree: exp.Expression, listed: dict[type[exp.Expr], frozenset[str]]) -> list[str]:
    """Nodes and arguments of an emitted tree that are not on its list (ROWS or OUTER): must be empty."""
    found = []
    for node in tree.walk():
        arguments = listed.get(type(node))
        if arguments is None or (isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count)):
            found.append(type(node).__name__)
            continue
        found += [
            f"{type(node).__name__}.{key}"
            for key, value in node.args.items()
            if key not in arguments and _filled(value)
        ]
    return found


def _filled(value: object) -> bool:
    return value is not None and value is not False and value != [] and value != ""


def _refuse_node(node: exp.Expr) -> ConstructRefused:
    name = spelled(node)
    remedy = REMEDIES.get(type(node).__name__, GENERAL)
    if isinstance(node, exp.Anonymous) and name.lower() in NOW:
        remedy = REMEDIES["CurrentTimestamp"]
    return refused(f"{name} is not on the list of supported SQL", node, construct=name, remedy=remedy)


ARGUMENTS = {
    "into": REMEDIES["Into"],
    "locks": REMEDIES["Lock"],
    "sample": REMEDIES["TableSample"],
    "db": "name the table alone: datasets have no schemas",
    "catalog": "name the table alone: datasets have no schemas",
    "recursive": "write a plain WITH",
    "method": "write INNER JOIN or LEFT JOIN with ON",
    "pivots": "write one aggregate with FILTER per column",
    "escape": "drop ESCAPE",
    "on": "write SELECT DISTINCT without ON",
}


def _refuse_argument(node: exp.Expr, key: str, value: object) -> ConstructRefused:
    where = value if isinstance(value, exp.Expr) else node
    label = f"{spelled(node)} … {key.strip('_').replace('_', ' ').upper()}"
    return refused(
        f"{label} is not on the list of supported SQL", where, construct=label, remedy=ARGUMENTS.get(key, GENERAL)
    )
