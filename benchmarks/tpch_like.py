"""TPC-H-like data with skewed users: raw tables as a file would hold them, and their prepared copies.

Sizes follow the scale factor (6M lines: 1.5M orders, 200k parts, 150k users, 2,526 days). Users are
skewed (density x^(-1/3)): about 0.25% of them have more than five times the average number of lines.
Everything is a hash of the row's number, so two runs measure the same data.
"""

import duckdb

DAYS = 2526
FIRST_DAY = "DATE '1992-01-02'"
HEAVY = 5  # times the average number of rows


def generate(connection: duckdb.DuckDBPyConnection, lines: int) -> None:
    """raw_orders, raw_lineitem and their prepared copies, as the importer would build them."""
    orders, parts, users = max(1, lines // 4), max(1, lines // 30), max(1, lines // 40)
    connection.execute(f"""
        CREATE TABLE raw_orders AS SELECT
            i AS o_orderkey,
            CAST(floor(pow({_uniform("i", 1)}, 1.5) * {users}) AS BIGINT) AS o_custkey,
            {FIRST_DAY} + CAST(hash(i, 2) % {DAYS - 120} AS INTEGER) AS o_orderdate
        FROM range({orders}) AS t(i)""")
    connection.execute(f"""
        CREATE TABLE raw_lineitem AS SELECT
            o_orderkey AS l_orderkey,
            CAST(hash(n, 3) % {parts} AS BIGINT) AS l_partkey,
            CAST(1 + hash(n, 4) % 50 AS DOUBLE) AS l_quantity,
            round(900 + {_uniform("n", 5)} * 104000, 2) AS l_extendedprice,
            (hash(n, 6) % 11) / 100.0::DOUBLE AS l_discount,
            CASE WHEN hash(n, 7) % 2 = 0 THEN 'N' WHEN hash(n, 8) % 2 = 0 THEN 'A' ELSE 'R' END AS l_returnflag,
            CASE WHEN hash(n, 9) % 2 = 0 THEN 'O' ELSE 'F' END AS l_linestatus,
            o_orderdate + CAST(1 + hash(n, 10) % 121 AS INTEGER) AS l_shipdate,
            o_custkey AS l_custkey
        FROM range({lines}) AS t(n) JOIN raw_orders ON o_orderkey = n % {orders}
        ORDER BY o_orderkey, n""")
    connection.execute(
        f"CREATE TABLE raw_people AS SELECT i AS p_id, {_uniform('i', 11)} * 100 AS p_score, "
        f"CAST(hash(i, 12) % 50 AS BIGINT) AS p_region FROM range({lines // 3}) AS t(i)"
    )
    _prepare(connection)


def _uniform(seed: str, salt: int) -> str:
    return f"(hash(hash({seed}, {salt})) / 18446744073709551616.0::DOUBLE)"


def _code(column: str, low: int, high: int, steps: int) -> str:
    value = f"round({column} * {steps})"
    low, high = low * steps, high * steps
    clamped = f"CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END"
    return f'CAST({clamped} AS INTEGER) AS "{column}#"'


def _prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Ordered by unit, coded, with a random rank per row and the indexes (DESIGN section 6)."""
    connection.execute("""
        CREATE TABLE "#units" AS SELECT row_number() OVER (ORDER BY u) - 1 AS "#unit", hash(u) AS "key", u
        FROM (SELECT DISTINCT o_custkey AS u FROM raw_orders)""")
    lines = [_code("l_quantity", 0, 50, 1), _code("l_extendedprice", 0, 105000, 64), _code("l_discount", 0, 1, 1024)]
    _copy(connection, "lineitem", f"SELECT l.*, {', '.join(lines)}", "raw_lineitem", "l_custkey")
    _copy(connection, "orders", "SELECT l.*", "raw_orders", "o_custkey")
    connection.execute(f"""
        CREATE TABLE "people" AS SELECT *, {_code("p_score", 0, 100, 1024)}, p_id AS "#unit",
        0::BIGINT AS "#rank" FROM raw_people ORDER BY p_id""")
    for table, codes in (
        ("lineitem", ("l_quantity", "l_extendedprice", "l_discount")),
        ("orders", ()),
        ("people", ("p_score",)),
    ):
        sums = "".join(f', sum(abs("{code}#")) AS "{code}#abs"' for code in codes)
        index = f'SELECT "#unit", count(*) AS "rows"{sums} FROM "{table}" GROUP BY 1 ORDER BY 1'
        connection.execute(f'CREATE TABLE "{table}#units" AS {index}')


def _copy(connection: duckdb.DuckDBPyConnection, name: str, select: str, source: str, unit: str) -> None:
    rank = 'row_number() OVER (PARTITION BY "#unit" ORDER BY hash(hash(l.rowid, 99))) - 1 AS "#rank"'
    connection.execute(f"""
        CREATE TABLE "{name}" AS {select}, "#unit", {rank}
        FROM {source} AS l JOIN "#units" ON {unit} = u ORDER BY "#unit" """)
