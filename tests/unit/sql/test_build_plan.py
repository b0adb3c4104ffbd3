"""Plans: digests, shared measures, domains, bounds, row bounds, outputs."""

from dataclasses import replace
from fractions import Fraction

import pytest
from sqlglot import exp

from service.core.errors import BoundsMissing
from service.core.plan import Plan, Query, RowBound
from service.core.prepared import POSITION
from service.core.request import Ask, AskedBounds
from service.sql.expr.ranges import MADE
from service.sql.understand import understand
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA

F = Fraction


def ask(sql: str, **bounds: object) -> Query:
    return understand(Ask("shop", sql, bounds=AskedBounds(**bounds)), SCHEMA)  # type: ignore[arg-type]


def plan(sql: str, **bounds: object) -> Plan:
    (found,) = ask(sql, **bounds).cores
    return found


SAME = [
    "SELECT status, store, COUNT(*), SUM(amount) FROM orders"
    " WHERE amount > 5 AND status IN ('a', 'b') GROUP BY status, store",
    'select  STORE, "Status", sum( o.amount ) as s , count(*) n\nfrom Orders as o'
    " where o.status in ('b','a') and (o.amount > 5) group by 2, 1 order by n limit 3",
    "SELECT s, t, COUNT(*), SUM(x) FROM (SELECT status AS s, store AS t, amount AS x FROM orders WHERE amount > 5) q"
    " WHERE s IN ('a','b') GROUP BY s, t HAVING COUNT(*) > 3",
    "WITH q AS (SELECT * FROM orders) SELECT status, store, COUNT(*) * 2, -SUM(amount) FROM q"
    " WHERE 5 < amount AND status IN ('a', 'b') GROUP BY ALL",
]


def test_spellings_of_one_question_share_a_digest_and_their_columns() -> None:
    plans = [plan(sql) for sql in SAME]
    assert len({found.digest for found in plans}) == 1
    assert len({found.rows.sql() for found in plans}) == 1
    assert len({tuple((a.name, a.function.name, a.argument) for a in found.aggregates) for found in plans}) == 1


def test_other_questions_have_other_digests() -> None:
    different = [
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM customers",
        "SELECT COUNT(*) FROM orders WHERE amount > 5",
        "SELECT COUNT(*) FROM orders WHERE amount > 6",
        "SELECT COUNT(*) FROM orders WHERE status > '5'",
        "SELECT COUNT(amount) FROM orders",
        "SELECT SUM(amount) FROM orders",
        "SELECT SUM(amount) FILTER (WHERE status = 'a') FROM orders",
        "SELECT SUM(amount) FILTER (WHERE status = 'b') FROM orders",
        "SELECT status, COUNT(*) FROM orders GROUP BY 1",
        "SELECT store, COUNT(*) FROM orders GROUP BY 1",
        "SELECT COUNT(*) FROM orders JOIN customers USING (customer_id)",
        "SELECT COUNT(*) FROM orders LEFT JOIN customers USING (customer_id)",
        "SELECT QUANTILE_CONT(amount, 0.5) FROM orders",
        "SELECT QUANTILE_CONT(amount, 0.6) FROM orders",
    ]
    assert len({plan(sql).digest for sql in different}) == len(different)


def test_the_digest_names_the_question_not_its_bounds() -> None:
    one = plan("SELECT SUM(amount) FROM orders")
    two = plan("SELECT SUM(amount) FROM orders", rows_per_unit=3, columns={"orders.amount": (F(0), F(10))})
    assert one.digest == two.digest
    assert one.measures != two.measures


def test_a_core_has_the_same_digest_alone_and_beside_others() -> None:
    alone = plan("SELECT COUNT(*) FROM orders")
    pair = ask("SELECT country, COUNT(*) / (SELECT COUNT(*) FROM orders) FROM customers GROUP BY country")
    assert pair.cores[1].digest == alone.digest


def test_aggregates_of_one_argument_share_a_measure() -> None:
    found = plan("SELECT SUM(amount), AVG(amount), STDDEV(amount), COUNT(amount), COUNT(*), SUM(amount) FROM orders")
    assert len(found.measures) == 1
    assert [(a.function.name, a.argument) for a in found.aggregates] == [
        ("avg", "m0"),
        ("count", None),
        ("count", "m0"),
        ("stddev_samp", "m0"),
        ("sum", "m0"),
    ]


def test_an_aggregate_that_the_parser_has_no_name_for_is_one_like_any_other() -> None:
    found = plan("SELECT RMS(amount), rms(amount) FILTER (WHERE amount > 0), AVG(amount) FROM orders")
    assert [(a.function.name, a.argument) for a in found.aggregates] == [("avg", "m0"), ("rms", "m0"), ("rms", "m1")]
    assert all(max(abs(measure.low), abs(measure.high)) <= 1 << 20 for measure in found.measures), "coded for squares"


def test_arithmetic_over_codes_stays_exact() -> None:
    (measure,) = plan("SELECT SUM(price * (1 - discount)) FROM items").measures
    assert (measure.step, measure.low, measure.high) == (F(1, 10_000), 0, 1_000_000)


def test_wide_codes_are_coarsened_to_32_bits_and_squares_to_20() -> None:
    (wide,) = plan("SELECT SUM(price * price * price * quantity) FROM items").measures
    assert max(abs(wide.low), abs(wide.high)) <= 1 << 32
    assert wide.step > F(1, 1_000_000)
    (square,) = plan("SELECT VAR_POP(price * quantity), SUM(price * quantity) FROM items").measures
    assert max(abs(square.low), abs(square.high)) <= 1 << 20


def test_a_sum_and_a_distinct_count_of_one_expression_don_t_mix_up_their_columns() -> None:
    found = plan("SELECT SUM(age), COUNT(DISTINCT age), MODE(country), COUNT(DISTINCT country) FROM customers")
    assert {(a.function.name, a.argument) for a in found.aggregates} == {
        ("sum", "m0"),
        ("count_distinct", "d0"),
        ("mode", "d1"),
        ("count_distinct", "d1"),
    }


def test_disjoint_filters_are_one_family() -> None:
    found = plan(
        "SELECT COUNT(*) FILTER (WHERE status = 'open'), COUNT(*) FILTER (WHERE status = 'paid'),"
        " SUM(CASE WHEN status = 'x' THEN amount ELSE 0 END) FROM orders"
    )
    families = {measure.disjoint for measure in found.measures}
    assert len({family[0] for family in families if family}) == 1
    assert len(families) == 3


@pytest.mark.parametrize(
    ("sql", "domain"),
    [
        ("SELECT country, COUNT(*) FROM customers GROUP BY 1", ("DE", "FR", "IT")),
        ("SELECT country, COUNT(*) FROM customers WHERE country IN ('FR', 'XX') GROUP BY 1", ("FR",)),
        ("SELECT status, COUNT(*) FROM orders WHERE status IN ('b', 'a') GROUP BY 1", ("a", "b")),
        ("SELECT store, COUNT(*) FROM orders WHERE store = 3 GROUP BY 1", (3,)),
        ("SELECT LOWER(country), COUNT(*) FROM customers GROUP BY 1", ("de", "fr", "it")),
        ("SELECT LOWER(status), COUNT(*) FROM orders WHERE LOWER(status) IN ('x') GROUP BY 1", ("x",)),
        ("SELECT age > 3, COUNT(*) FROM customers GROUP BY 1", (False, True)),
        ("SELECT CASE WHEN vip THEN 'v' ELSE 'n' END, COUNT(*) FROM customers GROUP BY 1", ("v", "n")),
        ("SELECT CASE WHEN vip THEN 'v' END, COUNT(*) FROM customers GROUP BY 1", ("v", None)),
        ("SELECT MONTH(placed), COUNT(*) FROM orders GROUP BY 1", tuple(range(1, 13))),
        ("SELECT status, COUNT(*) FROM orders GROUP BY 1", None),
        ("SELECT status, COUNT(*) FROM orders WHERE status IN ('a') OR store = 1 GROUP BY 1", None),
        ("SELECT store, COUNT(*) FROM orders WHERE status IN ('a') GROUP BY 1", None),
    ],
)
def test_keys_are_declared_by_the_catalog_the_query_or_the_expression(sql: str, domain: object) -> None:
    (key,) = plan(sql).keys
    assert key.domain == domain


def test_a_column_of_a_joined_public_table_declares_its_keys() -> None:
    (key,) = plan("SELECT kind, COUNT(*) FROM items JOIN products USING (product_id) GROUP BY kind").keys
    assert (key.public, key.domain) == (("products", "kind"), None)


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("SELECT COUNT(*) FROM orders WHERE amount > 1", RowBound(0, ("orders",))),
        ("SELECT COUNT(*) FROM orders JOIN customers USING (customer_id)", RowBound(0, ("orders",))),
        ("SELECT COUNT(*) FROM customers LEFT JOIN orders USING (customer_id)", RowBound(1, ("orders",))),
        ("SELECT COUNT(*) FROM orders LEFT JOIN customers USING (customer_id)", RowBound(0, ("orders",))),
        ("SELECT COUNT(*) FROM items i JOIN orders o ON i.order_id = o.order_id", RowBound(0, ("items",))),
        ("SELECT COUNT(*) FROM items JOIN products USING (product_id)", RowBound(0, ("items",))),
        (
            "SELECT COUNT(*) FROM orders JOIN stores USING (store) JOIN customers USING (customer_id)",
            RowBound(0, ("orders",)),
        ),
        ("SELECT COUNT(*) FROM orders, holidays WHERE placed = on_day", None),
        ("SELECT COUNT(*) FROM orders CROSS JOIN stores", None),
        ("SELECT COUNT(*) FROM orders JOIN visits ON customer_id = visitor", None),
        ("SELECT COUNT(*) FROM orders a JOIN orders b ON a.customer_id = b.customer_id", None),
        ("SELECT COUNT(*) FROM orders a JOIN orders b ON a.order_id = b.order_id", RowBound(0, ("orders",))),
        (
            "SELECT COUNT(*) FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders) u",
            RowBound(0, ("orders", "orders")),
        ),
        ("SELECT COUNT(*) FROM (SELECT customer_id FROM orders GROUP BY 1) u", RowBound(1, ())),
        ("SELECT COUNT(*) FROM (SELECT customer_id, status FROM orders GROUP BY 1, 2) u", RowBound(0, ("orders",))),
        (
            "SELECT COUNT(*) FROM visits JOIN (SELECT customer_id AS i FROM orders GROUP BY 1) u ON visitor = i",
            RowBound(0, ("visits",)),
        ),
    ],
)
def test_rows_per_unit_are_bounded_by_the_shape_of_the_query(sql: str, bound: RowBound | None) -> None:
    assert plan(sql).row_bound == bound


def test_private_joins_always_equate_the_hidden_unit() -> None:
    text = plan("SELECT COUNT(*) FROM items i JOIN orders o ON i.order_id = o.order_id").rows.sql(dialect="duckdb")
    assert '"t0"."#unit" = "t1"."#unit"' in text


def test_bounds_of_the_request_narrow_what_the_catalog_declares() -> None:
    (measure,) = plan("SELECT SUM(amount) FROM orders", columns={"orders.amount": (F(1), F(50))}).measures
    assert (measure.low, measure.high, measure.auto) == (100, 5000, False)
    (found,) = plan("SELECT SUM(amount) FROM orders", columns={"orders.amount": None}).measures
    assert (found.low, found.high, found.auto) == (0, 100_000, True)
    (raw,) = plan("SELECT SUM(raw) FROM orders", columns={"orders.raw": (F(-2), F(2))}).measures
    assert (raw.low * raw.step, raw.high * raw.step) == (-2, 2)


def test_bounds_of_a_derived_column_are_given_by_its_name() -> None:
    sql = "SELECT SUM(total) FROM (SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY 1) per"
    (measure,) = plan(sql, columns={"per.total": (F(0), F(200))}).measures
    assert (measure.low * measure.step, measure.high * measure.step) == (0, 200)


def test_unit_sums_belong_to_the_measure_of_their_column() -> None:
    found = plan("SELECT SUM(amount), SUM(weight) FROM orders", unit_sum={"orders.amount": F(2000)})
    (label,) = found.bounds.unit_sum
    assert next(m for m in found.measures if m.name == label).label == "amount"
    assert plan("SELECT SUM(amount) FROM orders", unit_sum={"orders.amount": None}).bounds.unit_sum == {"m0": None}


def test_per_unit_rows_count_once() -> None:
    assert plan("SELECT COUNT(*) FROM (SELECT customer_id FROM orders GROUP BY 1) u").bounds.rows_per_unit == 1


@pytest.mark.parametrize(
    "bounds",
    [
        {"columns": {"orders.nothing": (F(0), F(1))}},
        {"columns": {"customers.age": (F(0), F(1))}},
        {"columns": {"orders.amount": (F(2), F(1))}},
        {"columns": {"orders.raw": None}},
        {"unit_sum": {"orders.store": F(5)}},
        {"unit_sum": {"orders.amount": F(0)}},
        {"rows_per_unit": 0},
        {"groups_per_unit": 0},
        {"rows_per_unit": 2**40},
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: dict[str, object]) -> None:
    with pytest.raises(BoundsMissing) as refusal:
        plan("SELECT SUM(amount), COUNT(raw) FROM orders", **bounds)
    assert refusal.value.extra["remedy"]


def test_the_remedy_for_missing_bounds_works() -> None:
    with pytest.raises(BoundsMissing) as refusal:
        plan("SELECT SUM(raw / weight) FROM orders")
    assert "LEAST(GREATEST(" in str(refusal.value.extra["remedy"]) or "orders.raw" in str(refusal.value.extra["remedy"])
    (measure,) = plan("SELECT SUM(LEAST(GREATEST(raw / weight, 0), 100)) FROM orders").measures
    assert (measure.low, measure.high * measure.step) == (0, 100)


def test_row_wise_answers_carry_the_position_and_expressions() -> None:
    query = ask(
        "SELECT country, SUM(age) / COUNT(*) AS mean, RANK() OVER (ORDER BY COUNT(*)) AS r FROM customers GROUP BY 1"
    )
    country, mean, rank = query.outer.outputs
    assert query.outer.row_wise
    assert query.outer.select.expressions[-1].alias == POSITION
    assert (country.role, country.direct) == ("key", (0, "k0"))
    assert (mean.role, mean.direct) == ("value", None)
    assert mean.expression is not None
    assert mean.expression.sql() == '"a1" / "a0"'
    assert set(mean.uses) == {(0, "a0"), (0, "a1")}
    assert rank.expression is None


@pytest.mark.parametrize(
    ("sql", "row_wise"),
    [
        ("SELECT country, COUNT(*) FROM customers GROUP BY 1 HAVING COUNT(*) > 1 ORDER BY 2 LIMIT 1", True),
        ("SELECT n + 1 FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY 1) g WHERE n > 2", True),
        ("SELECT DISTINCT COUNT(*) FROM customers GROUP BY country", False),
        ("SELECT SUM(n) FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY 1) g", False),
        ("SELECT COUNT(*) FROM customers UNION ALL SELECT COUNT(*) FROM orders", False),
    ],
)
def test_row_wise_means_that_each_row_is_a_row_of_one_core(sql: str, row_wise: bool) -> None:
    query = ask(sql)
    assert query.outer.row_wise is row_wise
    assert (
        query.outer.select.expressions[-1].alias == POSITION if query.outer.select.expressions else False
    ) is row_wise


def test_nested_outputs_keep_their_expression_over_the_core() -> None:
    query = ask("SELECT n + 1 AS m, country FROM (SELECT country, COUNT(*) * 2 AS n FROM customers GROUP BY 1) g")
    m, country = query.outer.outputs
    assert m.expression is not None
    assert "a0" in m.expression.sql()
    assert country.direct == (0, "k0")


def test_names_of_outputs_are_those_of_duckdb() -> None:
    query = ask('SELECT country, COUNT(*), SUM(age), SUM(age) AS "My Sum", COUNT(*) FROM customers GROUP BY 1')
    assert [output.name for output in query.outer.outputs] == [
        "country",
        "count_star()",
        "sum(age)",
        "My Sum",
        "count_star()_1",
    ]


def test_public_tables_of_the_outer_sql_are_listed() -> None:
    inner = "SELECT product_id, COUNT(*) AS n FROM items GROUP BY 1"
    query = ask(f"WITH k AS ({inner}) SELECT kind, n FROM k JOIN products USING (product_id)")
    assert query.outer.public_tables == ("products",)


def test_equal_cores_are_one() -> None:
    sql = "WITH a AS (SELECT COUNT(*) AS n FROM orders), b AS (SELECT COUNT(*) AS m FROM orders) SELECT n - m FROM a, b"
    assert len(ask(sql).cores) == 1


def test_a_column_beyond_its_range_is_clamped_only_where_it_is_summed() -> None:
    text = plan("SELECT SUM(amount) FROM orders WHERE amount > 2000").rows.sql(dialect="duckdb")
    assert '"t0"."amount#" AS "m0"' in text
    assert '"t0"."amount" > 2000' in text


def test_the_schema_decides_who_is_private_not_the_name() -> None:
    tables = dict(SCHEMA.tables)
    tables["products"] = replace(tables["products"], unit=None)
    assert understand(Ask("shop", "SELECT COUNT(*) FROM items"), replace(SCHEMA, tables=tables)).cores


def test_one_column_under_two_names_keeps_the_bounds_of_each() -> None:
    found = plan(
        "SELECT SUM(a), SUM(b) FROM (SELECT amount AS a, amount AS b FROM orders) t", columns={"t.a": (F(0), F(1))}
    )
    assert sorted(measure.high for measure in found.measures) == [100, 100_000]
    assert (
        len(plan("SELECT SUM(a), AVG(b), COUNT(b) FROM (SELECT amount AS a, amount AS b FROM orders) t").measures) == 1
    )


@pytest.mark.parametrize("sql", accepted())
def test_every_code_that_is_computed_is_also_clamped_to_the_range_its_noise_is_for(sql: str) -> None:
    """A slip in a range proof must not let one row count for more: the clamp stands behind the proof."""
    for core in understand(Ask("shop", sql), SCHEMA).cores:
        ends = {measure.name: (measure.low, measure.high) for measure in core.measures if measure.low != measure.high}
        for column in core.rows.expressions:
            low, high = ends.get(column.alias_or_name, (0, 0))
            tree = column.this
            while isinstance(tree, exp.Case) and len(tree.args["ifs"]) == 1 and tree.args.get("default") is None:
                tree = tree.args["ifs"][0].args["true"]  # FILTER and CASE only leave rows out
            if low == high or (isinstance(tree, exp.Column) and not MADE.fullmatch(tree.name)):
                continue
            text = tree.sql(dialect="duckdb")
            whole = f"< {low} THEN {low}" in text and f"> {high} THEN {high}" in text
            assert whole or text.startswith("CAST(ROUND(CASE WHEN ISNAN("), text
