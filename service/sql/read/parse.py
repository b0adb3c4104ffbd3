"""Text to one sqlglot tree, with every limit checked before it can hurt.

in   the request's text and dialect
out  one SELECT (or UNION ALL of SELECTs) as sqlglot parsed it
Why  sqlglot recurses per parenthesis and raises RecursionError near fifty of them; a long IN list or a
     long chain costs seconds. So bytes are counted first, then a scan that doesn't build anything counts
     nesting, then tokens, and only then the parser runs; the depth of the tree is measured without recursion.
"""

import logging
import re
from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from service.core.errors import ConstructRefused, SyntaxRefused
from service.sql.read.spellings import name_aggregates

# sqlglot warns with the text it could not read: the analyst's literals have no place in our logs.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

BYTES = 64 * 1024
TOKENS = 8_000
NESTING = 32
DEPTH = 48
JOINS = 8
OUTPUTS = 50
IN_ITEMS = 1_000
SOURCES = 100

DIALECTS = (
    "duckdb", "postgres", "bigquery", "snowflake", "spark", "trino", "presto", "databricks", "redshift",
    "mysql", "sqlite", "clickhouse", "tsql", "oracle", "hive", "athena",
)  # fmt: skip

# Brackets outside strings, quoted names and comments; CASE nests too.
SCAN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<open>[(\[{]|\bcase\b)|(?P<close>[)\]}]|\bend\b)|\w+|[^\s\w]",
    re.IGNORECASE | re.DOTALL,
)
EXPECTED = re.compile(r"Expect(?:ed|ing) (.+?)(?: but got .*)?$")
PLAIN_WORD = re.compile(r"[A-Za-z_]{1,30}|[^\w\s'\"]{1,3}")
LOOK_BEFORE = (
    "look at what stands before: a word may be misspelled (a query begins with SELECT or WITH), or a comma, an"
    " operator, a quote or a bracket missing"
)
CHAIN = re.compile(r"(?:\bnot\b\s*|[-+~!@]\s*){24,}", re.IGNORECASE)


def parse(sql: str, dialect: str) -> exp.Expression:
    """The tree of one statement, within all limits, or a refusal."""
    if dialect not in DIALECTS:
        raise ConstructRefused(
            f"dialect {dialect[:40]!r} is not read",
            {"construct": "dialect", "remedy": f"use one of {', '.join(DIALECTS)}"},
        )
    check_size(sql)
    tree = _read(sql, dialect)
    check_shape(tree)
    name_aggregates(tree)
    return tree


def _too_much(what: str, limit: int, remedy: str) -> ConstructRefused:
    return ConstructRefused(f"more than {limit} {what}", {"construct": what, "remedy": remedy})


def check_size(sql: str) -> None:
    """Limits that can be told from the text alone, in one linear scan."""
    if len(sql) > BYTES or len(sql.encode("utf-8", "surrogatepass")) > BYTES:
        raise _too_much("bytes of SQL", BYTES, "ask for less in one query, or put long lists into a public table")
    bad = next((c for c in sql if (ord(c) < 32 and c not in "\t\n\r") or 0xD800 <= ord(c) < 0xE000), None)
    if bad is not None:
        at = sql.index(bad)
        line, column = sql.count("\n", 0, at) + 1, at - sql.rfind("\n", 0, at)
        raise SyntaxRefused(
            "the text holds a control character", {"line": line, "column": column, "remedy": "remove it"}
        )
    depth = deepest = 0
    for count, match in enumerate(SCAN.finditer(sql)):
        if count > 2 * TOKENS:  # what the scan counts as two may be one token
            raise _too_much("tokens", TOKENS, "ask for less in one query, or put long lists into a public table")
        if match["open"]:
            depth += 1
            deepest = max(deepest, depth)
        elif match["close"]:
            depth -= 1
    if deepest > NESTING or CHAIN.search(sql):
        raise _too_much("levels of nesting", NESTING, "name the inner parts in a WITH clause or simplify them")


def _read(sql: str, dialect: str) -> exp.Expression:
    try:
        reader = sqlglot.Dialect.get_or_raise(dialect)
        tokens = reader.tokenize(sql)
        if len(tokens) > TOKENS:
            raise _too_much("tokens", TOKENS, "ask for less in one query, or put long lists into a public table")
        if sum(token.token_type.name == "JOIN" for token in tokens) > JOINS:
            raise _too_much("joins", JOINS, "join fewer tables in one query")
        trees = [tree for tree in reader.parser().parse(tokens, sql) if tree is not None]
    except RecursionError:
        raise _too_much("levels of nesting", NESTING, "name the inner parts in a WITH clause") from None
    except SqlglotError as error:
        raise _syntax(error) from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError, ArithmeticError):
        # sqlglot's own slips on odd text: the text is at fault, and nothing of ours has run yet.
        raise SyntaxRefused("the SQL could not be read", {"line": 1, "column": 1, "remedy": LOOK_BEFORE}) from None
    if len(trees) != 1:
        said = "exactly one statement is expected" if trees else "the SQL is empty"
        raise SyntaxRefused(said, {"line": 1, "column": 1, "remedy": "send one SELECT statement"})
    assert isinstance(trees[0], exp.Expression)
    return trees[0]


def _syntax(error: SqlglotError) -> SyntaxRefused:
    """Where reading stopped and what was expected there. sqlglot counts to the end of the word it stopped at."""
    found = (getattr(error, "errors", None) or [{}])[0]
    word = str(found.get("highlight") or "")
    line, column = int(found.get("line") or 1), int(found.get("col") or 1)
    start = column - len(word) + 1 if word and "\n" not in word else column
    return SyntaxRefused(_said(found, word), {"line": line, "column": max(1, start), "remedy": LOOK_BEFORE})


def _said(found: Mapping[str, object], word: str) -> str:
    what = str(found.get("description") or "the SQL could not be read").split("\n", 1)[0]
    wanted = EXPECTED.match(what)
    if wanted is not None:
        return f"{wanted[1][:60]} is expected here"
    if not what.startswith("Invalid expression"):
        return what[:200]
    return f"{word.upper()} can not follow here" if PLAIN_WORD.fullmatch(word) else "this can not follow here"


def check_shape(tree: exp.Expression) -> None:
    """Limits of the tree (depth, outputs, joins, IN items), without recursion. A chain of one operator of
    AND or OR counts as one level, because we walk those in a loop."""
    joins = 0
    waiting: list[tuple[exp.Expression, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH:
            raise _too_much("levels of nesting", DEPTH, "name the inner parts in a WITH clause or simplify them")
        if isinstance(node, exp.Join):
            joins += 1
            if joins > JOINS:
                raise _too_much("joins", JOINS, "join fewer tables in one query")
        if isinstance(node, exp.Select) and len(node.expressions) > OUTPUTS:
            raise _too_much("outputs", OUTPUTS, "select fewer columns")
        if len(node.expressions) > IN_ITEMS:
            raise _too_much("items in a list", IN_ITEMS, "put the list into a public table and join it")
        for child in node.iter_expressions():
            chained = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            waiting.append((child, depth if chained else depth + 1))
