"""From aggregate calls to the measures, attributes and aggregates of a core.

in   the calls of one SELECT, bound to its rows
out  equal arguments become one measure, equal calls one aggregate; names in canonical order
Why  primitives are noised once each and shared: SUM(x), AVG(x), COUNT(x) read one measure. Sorting by canonical
     text makes the names independent of how the question was spelled, so a stored core fits every spelling.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from service.core.aggregates import AggregateSpec, ReleasedAs, TakenOf
from service.core.errors import ConstructRefused
from service.core.plan import Aggregate, Attribute, Measure
from service.core.schema import BIGINT, DOUBLE, SqlType
from service.sql.cores.disjoint import family
from service.sql.expr import ranges
from service.sql.expr.canonical import canonical_key, canonical_text
from service.sql.expr.compiler import Compiler
from service.sql.expr.lengths import text_bytes
from service.sql.expr.trees import not_null, number, when, wrapped
from service.sql.expr.values import NULL, UNIT, Code, Value
from service.sql.read.aggregates import Asked
from service.sql.read.output_names import sql_as_written
from service.sql.refusals import missing_bounds, refused

BITS = {0: 0, 1: ranges.SUM_BITS, 2: ranges.SQUARE_BITS}  # of a measure whose moments are summed, by their degree


@dataclass(slots=True)
class Argument:
    """What is aggregated: a value under a condition. `bits` is 0 while it is only counted."""

    value: Value | None
    condition: Value | None
    label: str
    node: exp.Expression
    bits: int = 0
    what: str = ""  # the argument alone, for notes and receipts

    @property
    def text(self) -> str:
        parts = [canonical_text(part.tree) if part is not None else "*" for part in (self.value, self.condition)]
        return " ? ".join(parts)

    @property
    def codes(self) -> str:
        """What is summed, and between which bounds."""
        value = self.value
        code = None if value is None else value.code
        return f"{None if code is None else canonical_text(code.tree)} {None if value is None else value.range}"


@dataclass(frozen=True, slots=True)
class Call:
    """One distinct aggregate: the text of its argument stands for it until names are given."""

    function: AggregateSpec
    argument: str | None
    p: Fraction | None


@dataclass(slots=True)
class Collector:
    """Collects calls; `finish` names everything."""

    compiler: Compiler
    measures: dict[str, Argument] = field(default_factory=dict)
    attributes: dict[str, Argument] = field(default_factory=dict)
    calls: dict[Call, tuple[str, SqlType]] = field(default_factory=dict)

    def add(self, call: Asked, node: exp.Expression) -> Call:
        label = sql_as_written(node)
        condition = self.compiler.boolean(call.condition) if call.condition is not None else None
        value = self.compiler.value(call.argument) if call.argument is not None else None
        what = argument_as_written(call, label)
        if call.function.taken_of is TakenOf.ATTRIBUTE:
            return self._attribute(call.function, Argument(value, condition, label, node, what=what))
        if call.function.counts and value is not None and value.constant is not None and value.type is not NULL:
            value = None  # COUNT(1)
        if value is None and condition is None:
            return self._remember(Call(call.function, None, None), label, BIGINT)
        return self._measure(call, Argument(value, condition, label, node, what=what))

    def _remember(self, call: Call, label: str, kind: SqlType) -> Call:
        self.calls.setdefault(call, (label, kind))
        return call

    def _attribute(self, function: AggregateSpec, argument: Argument) -> Call:
        value = argument.value
        assert value is not None
        if function.of_units is not None and UNIT in value.tokens and argument.condition is None:
            return self._remember(Call(function.of_units, None, None), argument.label, BIGINT)
        if function.needs_domain and value.domain is None:
            word = function.name.upper()
            raise refused(
                f"{word} needs a column with a declared domain",
                argument.node,
                construct=word,
                remedy="GROUP BY it with COUNT(*), ORDER BY it DESC LIMIT 1, or have an admin declare its domain",
            )
        if function.needs_domain and value.reads_unit:
            raise show_unit(argument.node)
        self.attributes.setdefault(argument.text, argument)
        return self._remember(Call(function, argument.text, None), argument.label, function.result(value.type))

    def _measure(self, call: Asked, argument: Argument) -> Call:
        value, word = argument.value, call.function.name.upper()
        if not call.function.counts:
            assert value is not None
            if value.type is NULL or value.type.name in ("BOOLEAN", "VARCHAR") or not _fits(call.function, value.type):
                raise refused(
                    f"{word} of {value.type} is not answered",
                    argument.node,
                    construct=word,
                    remedy="aggregate a number; for conditions use COUNT_IF, for text COUNT(DISTINCT x) or MODE",
                )
            if call.function.additive:
                argument = _without_zero(argument)
        key = self._key(call.function, argument)
        kept = self.measures.setdefault(key, argument)
        bits = ranges.ORDER_BITS if call.function.released_as is ReleasedAs.CHOSEN else BITS[call.function.degree]
        kept.bits = bits if kept.bits == 0 else min(kept.bits, bits or kept.bits)
        kind = call.function.result(BIGINT if value is None else value.type)
        return self._remember(Call(call.function, key, call.p), argument.label, kind)

    def _key(self, function: AggregateSpec, argument: Argument) -> str:
        """Equal text is one measure, unless the same column under another name has bounds of its own."""
        known = self.measures.get(argument.text)
        if known is None or function.counts or known.codes == argument.codes:
            return argument.text
        return f"{argument.text} @ {argument.codes}"

    def finish(self) -> tuple["Named", dict[Call, str]]:
        measures = {key: f"m{i}" for i, key in enumerate(sorted(self.measures))}
        attributes = {key: f"d{i}" for i, key in enumerate(sorted(self.attributes))}
        ordered = sorted(self.calls, key=lambda call: (call.function.name, call.argument or "", call.p or Fraction(0)))
        columns = {call: f"a{i}" for i, call in enumerate(ordered)}
        aggregates = tuple(
            Aggregate(columns[call], call.function, names.get(call.argument or ""), kind, label, call.p)
            for call in ordered
            for label, kind in [self.calls[call]]
            for names in [attributes if call.function.taken_of is TakenOf.ATTRIBUTE else measures]
        )
        coded = {measures[key]: code_of(self.measures[key]) for key in measures}
        trees = {label: code.tree for label, code in coded.items()}
        trees |= {attributes[key]: attribute_tree(self.attributes[key]) for key in attributes}
        built = tuple(_built(measures[key], self.measures[key], coded[measures[key]]) for key in sorted(measures))
        marks = tuple(
            Attribute(attributes[key], value.type, argument.what, value.domain, text_bytes(value))
            for key in sorted(attributes)
            for argument in [self.attributes[key]]
            for value in [argument.value]
            if value is not None
        )
        sources = {measures[key]: argument for key, argument in self.measures.items()}
        return Named(aggregates, built, marks, trees, sources), columns


@dataclass(frozen=True, slots=True)
class Named:
    """What a core computes, under the names that its plan gives: m0, m1, … and a0, a1, …"""

    aggregates: tuple[Aggregate, ...]
    measures: tuple[Measure, ...]
    attributes: tuple[Attribute, ...]
    trees: dict[str, exp.Expression]
    sources: dict[str, Argument]


def show_unit(node: exp.Expression) -> ConstructRefused:
    return refused(
        f"{sql_as_written(node)} tells units apart, and the unit must not be shown",
        node,
        construct="unit column",
        remedy="count units with COUNT(DISTINCT unit), or group by something that many units share",
    )


def argument_as_written(call: Asked, label: str) -> str:
    """What is aggregated, as written: SUM(x) and MEDIAN(x) are both about x."""
    if call.argument is None:
        return label
    return (
        sql_as_written(call.argument)
        if call.condition is None
        else f"{sql_as_written(call.argument)} where {sql_as_written(call.condition)}"
    )


def _fits(function: AggregateSpec, kind: SqlType) -> bool:
    """Numbers can be added up; days and moments can only be compared."""
    return kind.is_numeric or function.released_as is ReleasedAs.CHOSEN


def _without_zero(argument: Argument) -> Argument:
    """SUM(CASE WHEN c THEN x ELSE 0 END) adds nothing where c fails: the same as SUM(x) FILTER (WHERE c)."""
    node = argument.node.this if isinstance(argument.node, exp.Sum) else None
    value = argument.value
    assert value is not None
    if not isinstance(node, exp.Case) or value.code is None or not isinstance(value.code.tree, exp.Case):
        return argument
    if not isinstance(value.tree, exp.Case):
        return argument
    default = node.args.get("default")
    tree = value.code.tree
    if not isinstance(default, exp.Literal) or str(default.this) != "0" or len(tree.args["ifs"]) != 1:
        return argument
    if node.this is not None or len(node.args["ifs"]) != 1:
        return argument
    code, raw = tree.copy(), value.tree.copy()
    for part in (code, raw):
        part.set("default", None)
    value = replace(value, tree=raw, code=replace(value.code, tree=code))
    return replace(argument, value=value)


def code_of(argument: Argument) -> Code:
    """The integer column: NULL where the condition fails; 1 where rows are only counted."""
    value = argument.value
    if argument.bits == 0 or value is None:
        tests = [argument.condition.tree] if argument.condition is not None else []
        if value is not None:
            tests.append(not_null(value.tree.copy()))
            if value.type == DOUBLE:
                tests.append(exp.Not(this=exp.IsNan(this=value.tree.copy())))
        test = wrapped(tests[0])
        for part in tests[1:]:
            test = exp.And(this=test, expression=wrapped(part))
        return Code(when((test, number(1))), Fraction(1), 1, 1)
    code = ranges.measure_code(value, argument.bits)
    if code is None:
        numeric = value.type.is_numeric
        raise missing_bounds(value.lacking, argument.node, construct=argument.label, numeric=numeric)
    if argument.condition is None:
        return code
    return replace(code, tree=when((argument.condition.tree, code.tree)))


def _built(label: str, argument: Argument, code: Code) -> Measure:
    value = argument.value
    kind = BIGINT if value is None or argument.bits == 0 else value.type
    auto = value is not None and value.auto and argument.bits > 0
    return Measure(label, kind, code.step, code.low, code.high, argument.what, _family(argument), auto)


def _family(argument: Argument) -> tuple[str, str] | None:
    value, condition = argument.value, argument.condition
    code = value.code.tree if value is not None and value.code is not None else None
    return family(condition.tree if condition is not None else None, code)


def attribute_tree(argument: Argument) -> exp.Expression:
    value = argument.value
    assert value is not None
    tree = canonical_key(value)
    return tree if argument.condition is None else when((argument.condition.tree, tree))
