"""What every engine must keep. A new engine subclasses EngineContract and gives the two fixtures.

engine     an Engine that holds shop.DECLARED with shop.ROWS as dataset "shop", and has at least two
           slots and a queue of at least two
new_version   a function that imports shop.ROWS again, so that the data version rises
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest

from service.core.boundary import Array, KeyTable
from service.core.errors import Conflict, TooBusy
from service.core.plan import Statement
from service.core.unsealing import unseal
from service.engine.base import Engine, EngineFailed, Slot
from tests.unit.engine.shop import JOINED

SECONDS = 20.0
SLOW = (
    'SELECT count(*) AS n FROM "orders" a, "orders" b, "orders" c, "orders" d, "orders" e, "orders" f, "orders" g,'
    ' "orders" h, "orders" i, "orders" j, "orders" k, "orders" l, "orders" m, "orders" o, "orders" p, "orders" q,'
    ' "orders" r, "orders" s WHERE a."amount#" + b."amount#" + c."amount#" + d."amount#" + e."amount#" + f."amount#"'
    ' + g."amount#" + h."amount#" + i."amount#" + j."amount#" + k."amount#" + l."amount#" + m."amount#" + o."amount#"'
    ' + p."amount#" + q."amount#" + r."amount#" + s."amount#" = 77'
)


def column(slot: Slot, sql: str, keys: KeyTable | None = None) -> list[Any]:
    """The column n of a statement."""
    statement = Statement(sql, ("n",), uses_keys=keys is not None)
    return unseal(slot.run(statement, keys, SECONDS))[0]["n"].tolist()


def objects(*values: object) -> Array:
    held = np.empty(len(values), dtype=object)
    held[:] = values
    return held


class EngineContract:
    def test_the_dialect_has_a_name(self, engine: Engine) -> None:
        assert engine.dialect

    def test_integer_columns_come_back_as_int64_in_order(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            statement = Statement(
                'SELECT "order_id" AS n, -"order_id" AS m FROM "orders" ORDER BY "order_id" DESC', ("n", "m")
            )
            columns, keys = unseal(slot.run(statement, None, SECONDS))
        assert columns["n"].dtype == np.int64
        assert columns["n"].tolist() == [13, 12, 11, 10]
        assert columns["m"].tolist() == [-13, -12, -11, -10]
        assert keys == {}

    def test_sums_beyond_64_bits_are_exact_python_integers(self, engine: Engine) -> None:
        large = 2**62
        sql = f'SELECT SUM(CAST({large} AS DECIMAL(38,0)) * "order_id") AS n FROM "orders"'
        negative = f'SELECT SUM(CAST(-{large} AS DECIMAL(38,0)) * "order_id") AS n FROM "orders"'
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, sql) == [46 * large]
            assert column(slot, negative) == [-46 * large]

    def test_a_sum_over_nothing_is_zero_not_an_error(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT SUM("order_id") AS n FROM "orders" WHERE "order_id" < 0') == [0]

    def test_keys_come_back_sealed_as_scalars_of_their_type(self, engine: Engine) -> None:
        sql = (
            'SELECT COUNT(*) AS n, "shop" AS k0, "day" AS k1, "order_id" AS k2, "order_id" > 10 AS k3 FROM "orders"'
            ' GROUP BY "shop", "day", "order_id" ORDER BY "order_id"'
        )
        with engine.slot("shop", SECONDS) as slot:
            _, keys = unseal(slot.run(Statement(sql, ("n",), ("k0", "k1", "k2", "k3")), None, SECONDS))
            joined = Statement('SELECT 1 AS n, "joined" AS k0 FROM "customers" WHERE "id" = 1', ("n",), ("k0",))
            times = unseal(slot.run(joined, None, SECONDS))[1]["k0"].tolist()
        assert keys["k0"].tolist() == ["north", "south", "north", None]
        assert keys["k1"].tolist() == [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 1), None]
        assert keys["k2"].tolist() == [10, 11, 12, 13]
        assert keys["k3"].tolist() == [False, True, True, True]
        assert times == [JOINED]
        assert isinstance(times[0], datetime)

    def test_the_key_table_is_there_for_its_run_only_and_in_order(self, engine: Engine) -> None:
        keys = KeyTable({"k0": objects("south", "west", None, "north")}, 4)
        sql = (
            'SELECT COUNT(o."order_id") AS n FROM "#keys" k LEFT JOIN "orders" o'
            ' ON o."shop" IS NOT DISTINCT FROM k."k0" GROUP BY k."#pos" ORDER BY k."#pos"'
        )
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, sql, keys) == [1, 0, 1, 2]
            with pytest.raises(EngineFailed):
                slot.run(Statement('SELECT COUNT(*) AS n FROM "#keys"', ("n",)), None, SECONDS)

    @pytest.mark.parametrize(
        ("values", "matching"),
        [
            (objects(10, 12), '"order_id"'),
            (objects(1.0625, -0.0625), '"weight"'),
            (objects(date(2024, 1, 2), date(1999, 1, 1)), '"day"'),
            (objects(None, None), '"order_id"'),
            (objects(None, None), '"shop"'),
            (objects(True, False), '("order_id" > 11)'),
        ],
    )
    def test_key_tables_of_every_type_can_be_joined(self, engine: Engine, values: Array, matching: str) -> None:
        sql = f'SELECT COUNT(*) AS n FROM "#keys" k JOIN "orders" o ON o.{matching} = k."k0"'
        if matching.startswith("("):
            sql = f'SELECT COUNT(*) AS n FROM "#keys" k JOIN "orders" o ON {matching} = k."k0"'
        with engine.slot("shop", SECONDS) as slot:
            expected = {True: 4, None: 0}.get(values[0], 2 if values[0] != date(2024, 1, 2) else 1)
            assert column(slot, sql, KeyTable({"k0": values}, 2)) == [expected]

    def test_an_empty_key_table_is_a_table(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT COUNT(*) AS n FROM "#keys"', KeyTable({"k0": objects()}, 0)) == [0]
            assert column(slot, 'SELECT COUNT(*) AS n FROM "#keys"', KeyTable.single()) == [1]

    def test_a_person_has_one_code_in_all_tables(self, engine: Engine) -> None:
        chain = (
            'FROM "customers" c JOIN "orders" o ON c."id" = o."customer" JOIN "lines" l ON l."order_id" = o."order_id"'
        )
        same = 'c."#unit" = o."#unit" AND o."#unit" = l."#unit"'
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, f"SELECT COUNT(*) AS n {chain}") == [3]
            assert column(slot, f"SELECT COUNT(*) AS n {chain} WHERE {same}") == [3]
            assert column(slot, 'SELECT COUNT(DISTINCT "#unit") AS n FROM "orders"') == [3]

    def test_rows_without_a_unit_are_not_there(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT COUNT(*) AS n FROM "customers"') == [3]
            assert column(slot, 'SELECT "order_id" AS n FROM "orders" ORDER BY 1') == [10, 11, 12, 13]
            assert column(slot, 'SELECT "order_id" AS n FROM "lines" ORDER BY 1') == [10, 10, 12, 13]
            for name in ("customers", "orders", "lines"):
                assert column(slot, f'SELECT COUNT(*) AS n FROM "{name}" WHERE "#unit" IS NULL OR "#rank" IS NULL') == [
                    0
                ]

    def test_codes_are_rounded_clamped_and_null_for_what_is_no_number(self, engine: Engine) -> None:
        """-1 stands for NULL here."""
        with engine.slot("shop", SECONDS) as slot:
            code = 'SELECT COALESCE("{}#", -1) AS n FROM "orders" ORDER BY "order_id"'
            assert column(slot, code.format("amount")) == [1234, 10_000, 0, -1]
            # 1.0625 / 0.125 = 8.5 rounds up; NaN is no number; infinity is clamped; -0.5 rounds up to 0.
            assert column(slot, code.format("weight")) == [9, -1, 80, 0]
            assert column(slot, 'SELECT "age#" AS n FROM "customers" ORDER BY "id"') == [30, 18, 90]

    def test_raw_columns_keep_what_coding_loses(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT COUNT(*) AS n FROM "orders" WHERE "amount" = 250 OR "amount" < 0') == [2]

    def test_the_index_counts_rows_and_adds_up_codes_per_unit(self, engine: Engine) -> None:
        join = 'FROM "orders#units" u JOIN "customers" c ON c."#unit" = u."#unit" ORDER BY c."id"'
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, f'SELECT u."rows" AS n {join}') == [2, 1]
            assert column(slot, f'SELECT u."amount#abs" AS n {join}') == [11_234, 0]
            assert column(slot, f'SELECT u."weight#abs" AS n {join}') == [9, 80]
            assert column(slot, 'SELECT COUNT(*) AS n FROM "lines#units"') == [3]

    def test_every_unit_has_a_key_of_its_own(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            sql = 'SELECT COUNT(DISTINCT k."key") AS n FROM "#units" k JOIN "customers" c ON c."#unit" = k."#unit"'
            assert column(slot, sql) == [3]

    def test_a_failing_statement_says_nothing_of_the_data(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed) as failed:
            slot.run(Statement('SELECT CAST("shop" AS BIGINT) AS n FROM "orders"', ("n",)), None, SECONDS)
        assert "north" not in repr(failed.value)
        assert "north" not in str(failed.value.__cause__) + str(failed.value.__context__)

    @pytest.mark.parametrize("wrong", ["SELECT 1 AS m", "SELECT 1.5 AS n", "SELECT 'a' AS n", "SELECT 1 AS n, 2 AS m"])
    def test_columns_that_were_not_promised_are_a_failure(self, engine: Engine, wrong: str) -> None:
        with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed):
            slot.run(Statement(wrong, ("n",)), None, SECONDS)

    def test_a_late_statement_is_ended_and_the_next_slot_answers(self, engine: Engine) -> None:
        began = time.monotonic()
        with engine.slot("shop", SECONDS) as slot:
            with pytest.raises(EngineFailed):
                slot.run(Statement(SLOW, ("n",)), None, 0.3)
            assert time.monotonic() - began < 5
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]

    def test_too_busy_comes_at_once_when_nobody_wants_to_wait(self, engine: Engine) -> None:
        held, done = threading.Barrier(3), threading.Event()

        def hold() -> None:
            with engine.slot("shop", SECONDS):
                held.wait(SECONDS)
                done.wait(SECONDS)

        with ThreadPoolExecutor(2) as pool:
            holders = [pool.submit(hold) for _ in range(2)]
            held.wait(SECONDS)
            try:
                with pytest.raises(TooBusy), engine.slot("shop", 0.0):
                    pass
                with pytest.raises(TooBusy), engine.slot("shop", 0.05):
                    pass
            finally:
                done.set()
            for holder in holders:
                holder.result()

    def test_eight_at_once_get_the_right_answers(self, engine: Engine) -> None:
        def ask(number: int) -> list[Any]:
            keys = KeyTable({"k0": objects(number % 3 + 10, 99)}, 2)
            sql = (
                f'SELECT COUNT(o."order_id") * {number} AS n FROM "#keys" k LEFT JOIN "orders" o'
                ' ON o."order_id" = k."k0" GROUP BY k."#pos" ORDER BY k."#pos"'
            )
            with engine.slot("shop", SECONDS, share=str(number % 4)) as slot:
                return column(slot, sql, keys)

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(40))) == [[number, 0] for number in range(40)]

    def test_a_dataset_without_data_is_refused_before_a_slot_is_taken(self, engine: Engine) -> None:
        with pytest.raises(Conflict), engine.slot("nowhere", SECONDS):
            pass

    def test_public_values_are_distinct_sorted_and_limited(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert slot.public_values("shops", "name", 10).tolist() == ["east", "north", "south"]
            assert slot.public_values("shops", "name", 2).tolist() == ["east", "north"]
            sizes = slot.public_values("shops", "size", 10).tolist()
        assert sizes == [0.0, 1.0, 2.5]
        assert str(sizes[0]) == "0.0"  # one spelling of zero

    def test_values_of_a_private_table_are_not_public(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot, pytest.raises(AssertionError):
            slot.public_values("orders", "shop", 10)

    def test_a_running_query_finishes_on_its_version(self, engine: Engine, new_version: Callable[[], int]) -> None:
        with engine.slot("shop", SECONDS) as slot:
            old = slot.data_version
            new = new_version()
            assert new > old
            assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]
            assert slot.data_version == old
            with engine.slot("shop", SECONDS) as later:
                assert later.data_version == new
                assert column(later, 'SELECT COUNT(*) AS n FROM "orders"') == [4]
