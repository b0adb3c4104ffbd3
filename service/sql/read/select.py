"""The parts of one SELECT: outputs with stars expanded, GROUP BY with positions and aliases resolved."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from service.sql.read.aggregates import own_aggregates
from service.sql.read.output_names import output_names
from service.sql.read.parse import OUTPUTS
from service.sql.refusals import refused


@dataclass(frozen=True, slots=True)
class SelectParts:
    """One SELECT taken apart: outputs as (name, node without alias), group expressions, aggregates."""

    names: tuple[str, ...]
    nodes: tuple[exp.Expression, ...]
    aliases: dict[str, exp.Expression]
    groups: tuple[exp.Expression, ...]
    aggregates: tuple[exp.Expression, ...]
    distinct: bool
    having: exp.Expression | None

    @property
    def grouped(self) -> bool:
        return bool(self.groups or self.aggregates or self.distinct)


Items = Sequence[tuple[str, Iterable[str]]]


def select_parts(select: exp.Select, items: Items, known: set[str], merged: set[str]) -> SelectParts:
    """Takes one SELECT apart.

    `items` are the visible FROM items with their column names, `known` all names that are columns here.
    """
    written = _expanded(select, items, merged)
    names = output_names(written)
    nodes = [node.this if isinstance(node, exp.Alias) else node for node in written]
    aliases = {node.alias.lower(): node.this for node in written if isinstance(node, exp.Alias)}
    aggregates: list[exp.Expression] = []
    for part in (*nodes, *filter(None, (select.args.get(key) for key in ("having", "qualify", "order")))):
        aggregates += own_aggregates(part)
    groups = _groups(select, nodes, aliases, known)
    distinct = select.args.get("distinct") is not None
    if distinct and select.args["distinct"].expressions:
        raise refused("DISTINCT ON is not answered", select, construct="DISTINCT ON", remedy="write SELECT DISTINCT")
    having = select.args["having"].this if select.args.get("having") is not None else None
    if having is not None and not groups and not aggregates:
        raise refused("HAVING without aggregates", having, construct="HAVING", remedy="write WHERE")
    return SelectParts(tuple(names), tuple(nodes), aliases, tuple(groups), tuple(aggregates), distinct, having)


def _expanded(select: exp.Select, items: Items, merged: set[str]) -> list[exp.Expression]:
    """`*` and `t.*` as columns; EXCLUDE leaves columns out."""
    found: list[exp.Expression] = []
    for node in select.expressions:
        star = node if isinstance(node, exp.Star) else node.this if isinstance(node, exp.Column) else None
        if not isinstance(star, exp.Star):
            found.append(node)
            continue
        wanted = node.table.lower() if isinstance(node, exp.Column) else ""
        excluded = {part.name.lower() for part in star.args.get("except_") or []}
        seen: set[str] = set()
        for label, columns in items:
            if wanted and wanted != label:
                continue
            for column in columns:
                if column in excluded or (column in merged and column in seen):
                    continue
                seen.add(column)
                found.append(exp.column(column, table=label))
        if not seen:
            raise refused("* selects nothing here", node, construct="*", remedy="name the columns")
    if not found:
        raise refused("nothing is selected", select, construct="SELECT", remedy="name at least one output")
    if len(found) > OUTPUTS:
        raise refused(f"more than {OUTPUTS} outputs", select, construct="SELECT", remedy="name the columns you need")
    return found


def _groups(
    select: exp.Select, nodes: list[exp.Expression], aliases: dict[str, exp.Expression], known: set[str]
) -> list[exp.Expression]:
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [
            node
            for node in nodes
            if next(iter(own_aggregates(node)), None) is None and not isinstance(node, exp.Literal)
        ]
    found = []
    for node in group.expressions:
        if isinstance(node, exp.Literal) and not node.is_string:
            found.append(nodes[position(node, len(nodes), "GROUP BY") - 1])
        elif (
            isinstance(node, exp.Column)
            and not node.table
            and node.name.lower() not in known
            and node.name.lower() in aliases
        ):
            found.append(aliases[node.name.lower()])
        else:
            found.append(node)
    _check_keys(found)
    return found


def _check_keys(keys: list[exp.Expression]) -> None:
    for node in keys:
        if next(iter(own_aggregates(node)), None) is not None or node.find(exp.Window) is not None:
            raise refused(
                "an aggregate can not be a group key",
                node,
                construct="GROUP BY",
                remedy="group by columns or row expressions",
            )
        if node.find(exp.Select) is not None:
            raise refused(
                "a subquery can not be a group key",
                node,
                construct="GROUP BY",
                remedy="group by columns or row expressions",
            )


def position(node: exp.Literal, size: int, construct: str) -> int:
    """An output position, from 1."""
    digits = str(node.this)
    if not (digits.isascii() and digits.isdigit()) or not 1 <= int(digits) <= size:
        raise refused(
            f"{construct} {digits[:20]} names no output", node, construct=construct, remedy=f"use 1 to {size}"
        )
    return int(digits)
