"""Questions by which one person's presence would decide how much work there is, if anything would.

Each holds a condition that only the victim's rows meet, and multiplies what meets it: by public tables, by copies, by
long texts, by deep expressions, by groups. The same seed gives the same questions. hostile_clinic.py has the tables.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.attack.hostile_clinic import VICTIM

Draw = random.Random


@dataclass(frozen=True, slots=True)
class Hostile:
    """One question. `person` is the part of it that only the victim's rows meet."""

    kind: str
    sql: str
    person: str


# --- What only the victim meets ---------------------------------------------------------------------

OF_PEOPLE = (
    f"p.person = {VICTIM}", f"p.person = {VICTIM} AND p.salary > 65535", f"p.person IN ({VICTIM}, 999999)",
    "p.salary > 65535", "p.town = 'large'", f"p.person BETWEEN {VICTIM} AND {VICTIM} AND LENGTH(p.note) > 100",
    "p.person IN (SELECT v.person FROM visits v WHERE v.cost > 900)",
)  # fmt: skip
OF_VISITS = (
    f"v.person = {VICTIM}", f"v.person = {VICTIM} AND v.cost > 900", "v.cost > 900", "v.note LIKE '%aaaa%'",
    "EXISTS (SELECT 1 FROM people q WHERE q.person = v.person AND q.salary > 65535)",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fan:
    """A private table with what multiplies its rows, and texts that can be made long of it."""

    source: str
    person: str
    number: str
    text: str


def _fan(draw: Draw, *, joins: int) -> Fan:
    """Private rows times public ones, joined by nothing, by an equality that many rows meet, or by an inequality."""
    private = draw.choice(("p", "v"))
    number, text = ("p.salary", "p.note") if private == "p" else ("v.cost", "v.note")
    source = "people p" if private == "p" else "visits v"
    key = "p.salary % 10" if private == "p" else "v.drug % 10"
    for at in range(joins):
        source += draw.choice(
            (
                f" CROSS JOIN cal c{at}",
                f" CROSS JOIN codes c{at}",
                f" JOIN codes c{at} ON c{at}.code = {key}",
                f" JOIN cal c{at} ON c{at}.num < {'p.salary' if private == 'p' else 'v.drug'}",
                f" LEFT JOIN codes c{at} ON c{at}.code = {key}",
            )
        )
        if "codes" in source.rsplit("JOIN", 1)[1]:
            text = f"{text} || c{at}.word"
    return Fan(source, draw.choice(OF_PEOPLE if private == "p" else OF_VISITS), number, text)


# --- Kinds: each a question and the person's condition in it ------------------------------------------

Made = tuple[str, str]


def public_fan_out(draw: Draw) -> Made:
    fan = _fan(draw, joins=draw.randint(1, 4))
    output = draw.choice(("COUNT(*)", f"SUM({fan.number})", f"AVG({fan.number})", f"COUNT(*), SUM({fan.number})"))
    return f"SELECT {output} FROM {fan.source} WHERE {fan.person}", fan.person


def distinct_fan_out(draw: Draw) -> Made:
    fan = _fan(draw, joins=draw.randint(1, 3))
    what = draw.choice((fan.text, f"UPPER({fan.text})", f"{fan.number} + 1", f"LEFT({fan.text}, 300)"))
    return f"SELECT COUNT(DISTINCT {what}) FROM {fan.source} WHERE {fan.person}", fan.person


def union_copies(draw: Draw) -> Made:
    person = draw.choice(OF_VISITS)
    one = f"SELECT v.person, v.cost, v.note FROM visits v WHERE {person}"
    copies = " UNION ALL ".join([one] * draw.choice((2, 4, 8, 16, 40)))
    output = draw.choice(("COUNT(*)", "SUM(cost)", "COUNT(DISTINCT note)", "MEDIAN(cost)"))
    return f"SELECT {output} FROM ({copies}) AS u", person


def doubled_copies(draw: Draw) -> Made:
    """WITH queries that each read the one before twice."""
    person, levels = draw.choice(OF_VISITS), draw.randint(2, 8)
    parts = [f"w0 AS (SELECT v.person, v.cost FROM visits v WHERE {person})"]
    parts += [
        f"w{at} AS (SELECT person, cost FROM w{at - 1} UNION ALL SELECT person, cost FROM w{at - 1})"
        for at in range(1, levels)
    ]
    return f"WITH {', '.join(parts)} SELECT SUM(cost) FROM w{levels - 1}", person


def long_texts(draw: Draw) -> Made:
    person = draw.choice(OF_VISITS)
    text = "v.note"
    for _ in range(draw.randint(1, 9)):
        text = draw.choice(
            (
                f"{text} || {text}", f"CONCAT({text}, {text}, {text}, v.note)", f"UPPER({text})",
                f"REPLACE({text}, 'a', '🎉')", f"REPLACE({text}, 'A', 'é')", f"LOWER({text})",
            )
        )  # fmt: skip
        if len(text) > 20_000:
            break
    used = draw.choice(("COUNT(DISTINCT {})", "COUNT_IF({} LIKE '%a%b%a%b%a%b%a%c')", "SUM(LENGTH({}))"))
    return f"SELECT {used.format(text)} FROM visits v WHERE {person}", person


def texts_that_double(draw: Draw) -> Made:
    """The text grows from subquery to subquery, in rows or per person."""
    person, grown = draw.choice(OF_VISITS), draw.choice(("x || x", "CONCAT(x, x, x, x, x, x, x, x)"))
    inner = f"SELECT v.person, v.note AS x FROM visits v WHERE {person}"
    for _ in range(draw.randint(1, 8)):
        inner = draw.choice(
            (
                f"SELECT person, {grown} AS x FROM ({inner}) AS t",
                f"SELECT person, MAX({grown}) AS x FROM ({inner}) AS t GROUP BY person",
            )
        )
    return f"SELECT COUNT(DISTINCT x) FROM ({inner}) AS t", person


def deep_case(draw: Draw) -> Made:
    person, value = draw.choice(OF_VISITS), "0"
    for at in range(draw.choice((2, 5, 12, 28, 60))):
        test = (
            person if at == 0 else draw.choice((f"v.cost > {at}", f"v.note LIKE '%{at}%a%'", f"v.drug % {at + 2} = 1"))
        )
        value = f"CASE WHEN {test} THEN {draw.choice(('v.cost', 'SQRT(v.cost)', str(at)))} ELSE {value} END"
    return f"SELECT SUM({value}) FROM visits v CROSS JOIN cal c WHERE {person}", person


def deep_expression(draw: Draw) -> Made:
    fan, value = _fan(draw, joins=1), "1"
    forms = ("SQRT(ABS({}))", "EXP(LEAST({}, 5))", "LN({} + 1)", "POW({}, 2)", "ROUND({} * 7.25, 3)", "({}) / 3 + {n}")
    for at in range(draw.choice((3, 8, 20, 31, 70))):
        value = draw.choice(forms).format(fan.number if at == 0 else value, n=fan.number)
    return f"SELECT SUM(LEAST(GREATEST({value}, 0), 100)) FROM {fan.source} WHERE {fan.person}", fan.person


def many_quantiles(draw: Draw) -> Made:
    person = draw.choice(OF_VISITS)
    key = draw.choice(("c.num", "c.day", "c.num % 1000", "v.ward", "c.label"))
    wanted = [f"QUANTILE_CONT(v.cost, {at / 20})" for at in range(1, draw.choice((2, 6, 20)))]
    return f"SELECT {key}, {', '.join(wanted)} FROM visits v CROSS JOIN cal c WHERE {person} GROUP BY {key}", person


def self_join(draw: Draw) -> Made:
    person, copies = draw.choice(OF_VISITS), draw.randint(1, 3)
    source = "visits v" + "".join(f" JOIN visits w{at} ON w{at}.person = v.person" for at in range(copies))
    output = draw.choice(("COUNT(*)", "SUM(v.cost)", "COUNT(DISTINCT v.note || w0.note)", "MEDIAN(v.cost)"))
    return f"SELECT {output} FROM {source} WHERE {person}", person


def per_unit(draw: Draw) -> Made:
    person = draw.choice(OF_VISITS)
    fan = draw.choice(("", " CROSS JOIN cal c", " CROSS JOIN cal c CROSS JOIN codes d"))
    key = draw.choice(("", ", v.drug", ", v.note") + ((", c.num",) if fan else ()))
    inner = f"SELECT v.person, COUNT(*) AS n, MAX(v.note) AS x, SUM(v.cost) AS s FROM visits v{fan} WHERE {person}"
    output = draw.choice(("SUM(n)", "AVG(s)", "COUNT(DISTINCT x)", "COUNT(*)", "MEDIAN(n)"))
    return f"SELECT {output} FROM ({inner} GROUP BY v.person{key}) AS t", person


def semi_join(draw: Draw) -> Made:
    person = draw.choice(OF_PEOPLE)
    inside = draw.choice(
        (
            "EXISTS (SELECT 1 FROM visits w CROSS JOIN cal c WHERE w.person = p.person AND c.num > w.drug)",
            "EXISTS (SELECT 1 FROM codes d CROSS JOIN codes e WHERE d.code = p.salary % 10 AND e.word > d.word)",
            "p.person IN (SELECT w.person FROM visits w JOIN codes d ON d.code = w.drug % 10)",
            "p.salary IN (SELECT c.num FROM cal c CROSS JOIN codes d)",
            "NOT EXISTS (SELECT 1 FROM visits w CROSS JOIN codes d WHERE w.person = p.person AND d.word = w.note)",
        )
    )
    return f"SELECT COUNT(*) FROM people p WHERE {person} AND {inside}", person


def undeclared_keys(draw: Draw) -> Made:
    fan = _fan(draw, joins=draw.randint(0, 2))
    key = draw.choice((fan.text, f"LEFT({fan.text}, 40)", f"{fan.number} * 3", f"UPPER({fan.text})"))
    output = draw.choice(("COUNT(*)", f"SUM({fan.number})", f"COUNT(DISTINCT {fan.number})"))
    return f"SELECT {key}, {output} FROM {fan.source} WHERE {fan.person} GROUP BY 1", fan.person


def long_lists(draw: Draw) -> Made:
    person, many = draw.choice(OF_VISITS), draw.choice((10, 300, 1_000))
    tests = (
        f"v.drug NOT IN ({', '.join(str(at) for at in range(many))})",
        " AND ".join(f"v.note <> 'x{at}'" for at in range(min(many, 250))),
        "(" + " OR ".join(f"v.note LIKE '%{at}%a%{at}%a%'" for at in range(min(many, 200))) + " OR v.cost > 0)",
    )
    return f"SELECT COUNT(*) FROM visits v CROSS JOIN cal c WHERE {person} AND {draw.choice(tests)}", person


def nested_exists(draw: Draw) -> Made:
    """Each level reads what is around all of them. `x - x` is 0, which the engine's statistics do not know."""
    person, levels = draw.choice(OF_PEOPLE), draw.randint(1, 3)
    sources = [draw.choice(("cal", "codes")) for _ in range(levels)]
    numbers = [f"e{at}.{'num' if source == 'cal' else 'code'}" for at, source in enumerate(sources)]
    test = " + ".join(f"{number} * {at + 3}" for at, number in enumerate(numbers)) + " + p.salary - p.salary < 0"
    if draw.random() < 0.5:
        test = f"CONCAT(p.note, CAST({numbers[-1]} AS VARCHAR)) LIKE '%_a_b_c%' AND {test}"
    for at in reversed(range(levels)):
        test = f"EXISTS (SELECT 1 FROM {sources[at]} e{at} WHERE {test})"
    return f"SELECT COUNT(*) FROM people p WHERE {person} AND {test}", person


def made_texts(draw: Draw) -> Made:
    """Texts of nothing but literals, only where the victim is; a MAX per person keeps the engine from looking through
    it, and a public label makes every row's text another."""
    person, letters = draw.choice(OF_PEOPLE), draw.choice((50, 300, 1_000))
    first = f"SELECT p.person, MAX(CASE WHEN {person} THEN '{'a' * letters}' ELSE '' END) AS x FROM people p GROUP BY 1"
    second = f"SELECT person, MAX(CONCAT({', '.join(['x'] * draw.randint(1, 8))})) AS t FROM ({first}) AS o GROUP BY 1"
    fan = draw.choice(("cal c", "codes c"))
    label = "c.label" if fan == "cal c" else "c.word"
    pattern = draw.choice(("%_" + "_" * 60 + "b%", "%aaab%", "%a%a%b"))
    used = draw.choice(
        (
            "COUNT(DISTINCT z)", f"COUNT_IF(z LIKE '{pattern}')", f"COUNT_IF(z ILIKE '{pattern}')",
            "SUM(LENGTH(SPLIT_PART(z, 'a', 900)))", "SUM(LENGTH(REPLACE(z, 'a', 'b')))",
        )
    )  # fmt: skip
    return f"SELECT {used} FROM (SELECT person, t || {label} AS z FROM ({second}) AS q CROSS JOIN {fan}) AS r", person


def failing_casts(draw: Draw) -> Made:
    """A cast that fails costs the engine a whole error, row by row."""
    fan = _fan(draw, joins=draw.randint(1, 2))
    kinds = ("DATE", "BIGINT", "DOUBLE", "DECIMAL(18, 2)", "TIMESTAMP")
    casts = [f"CAST({fan.text} AS {draw.choice(kinds)}) IS NULL" for _ in range(draw.choice((1, 4, 16)))]
    return f"SELECT COUNT(*) FROM {fan.source} WHERE {fan.person} AND {' AND '.join(casts)}", fan.person


def wide_values_of_undeclared_keys(draw: Draw) -> Made:
    """The keys are few and named; what is counted under them is wide."""
    fan = _fan(draw, joins=draw.randint(1, 2))
    key = draw.choice((f"LEFT({fan.text}, 1)", f"LENGTH({fan.text}) % 2"))
    wide = f"CONCAT({', '.join([fan.text] * draw.randint(1, 4))})"
    return f"SELECT {key}, COUNT(DISTINCT {wide}) FROM {fan.source} WHERE {fan.person} GROUP BY 1", fan.person


def many_cores(draw: Draw) -> Made:
    fan = _fan(draw, joins=1)
    cores = [
        f"SELECT SUM({fan.number} + {at}) AS s FROM {fan.source} WHERE {fan.person}" for at in range(draw.randint(2, 6))
    ]
    return " UNION ALL ".join(cores), fan.person


KINDS: tuple[Callable[[Draw], Made], ...] = (
    public_fan_out, distinct_fan_out, union_copies, doubled_copies, long_texts, texts_that_double, deep_case,
    deep_expression, many_quantiles, self_join, per_unit, semi_join, undeclared_keys, long_lists,
    nested_exists, made_texts, failing_casts, wide_values_of_undeclared_keys, many_cores,
)  # fmt: skip


BY_WORK = (nested_exists, made_texts)  # what the victim decides there is not how many rows are left


def hostile_questions(seed: int, each: int) -> list[Hostile]:
    """So many questions of every kind."""
    draw = Draw(seed)
    return [Hostile(kind.__name__, *kind(draw)) for kind in KINDS for _ in range(each)]
