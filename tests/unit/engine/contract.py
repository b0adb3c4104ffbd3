"""What every engine must keep. A new engine subclasses EngineContract and gives the two fixtures.

engine     an Engine that holds shop.DECLARED with shop.ROWS as dataset "shop", and has at least two
           slots and a queue of at least two
new_version   a function that imports shop.ROWS again, so that the data version rises

Everything is asked in needs and answered in integers: which words an engine has for them is its own affair. Customers
1 (two orders: north 12.34, south 250.00 clamped to 100), 2 (north, -5.00 clamped to 0) and 4 (no shop, no amount).
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from math import isqrt
from typing import Any

import numpy as np
import pytest

from service.core.errors import Conflict, TooBusy
from service.core.plan import (
    ONE,
    BoundsNeed,
    CandidatesNeed,
    DistinctNeed,
    HistogramNeed,
    KeysNeed,
    L2Weight,
    MomentsNeed,
    RowsWeight,
    UnitsNeed,
    UnitSumWeight,
    UnitTotalsNeed,
)
from service.core.prepared import POSITION
from service.core.sizes import PrivateSize
from service.core.unsealing import unseal
from service.engine.base import Engine, EngineFailed
from tests.unit.engine.asking import (
    BY_SHOP,
    COUNTED,
    EVERY_ROW,
    LIGHT,
    SALT,
    SECONDS,
    SHOPS,
    SINGLE,
    cells,
    columns,
    core,
    count_orders,
    failing,
    keyed,
    slow,
)
from tests.unit.engine.shop import JOINED


class EngineContract:
    # --- Integers, keys and their order ---

    def test_a_dense_answer_has_one_int64_per_key_in_the_order_of_the_keys(self, engine: Engine) -> None:
        plan = core(BY_SHOP)
        needs = EVERY_ROW, MomentsNeed("m0", 2, LIGHT, 0, 10_000)
        with engine.slot("shop", SECONDS) as slot:
            ((answered, table),) = slot.compute(slot.work(plan, needs, SALT), SHOPS, SECONDS)
        exact, sealed = unseal(table)
        assert set(answered) == set(needs)
        assert sealed == {}
        assert {values.dtype for values in exact.values()} == {np.dtype(np.int64)}
        assert exact["*.n"].tolist() == [ONE, 0, ONE, 2 * ONE]
        assert exact["m0.n"].tolist() == [ONE, 0, 0, 2 * ONE]
        assert exact["m0.s1"].tolist() == [10_000 * ONE, 0, 0, 1234 * ONE]
        assert exact["m0.s2"].tolist() == [10_000**2 * ONE, 0, 0, 1234**2 * ONE]

    def test_sums_beyond_64_bits_are_exact_python_integers(self, engine: Engine) -> None:
        plan = core("SELECT age, MEDIAN(account) FROM customers GROUP BY age")
        need = MomentsNeed("m0", 1, LIGHT, -(2**59), 2**59)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, plan, need, keys=keyed(30, 17, 200))
        assert found["m0.s1"] == [2**59 * ONE, (1 - 2**59) * ONE, 7 * ONE]

    def test_a_sum_over_nothing_is_zero_not_an_error(self, engine: Engine) -> None:
        plan = core("SELECT SUM(amount) FROM orders WHERE order_id < 0")
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, plan, EVERY_ROW, MomentsNeed("m0", 2, LIGHT, 0, 10_000))
        assert found == {"*.n": [0], "m0.n": [0], "m0.s1": [0], "m0.s2": [0]}

    def test_private_keys_come_back_sealed_as_scalars_of_their_type(self, engine: Engine) -> None:
        plan = core("SELECT order_id > 10 AS late, shop, day, COUNT(*) FROM orders GROUP BY order_id > 10, shop, day")
        joined = core("SELECT joined, age, COUNT(*) FROM customers GROUP BY joined, age")
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, plan, KeysNeed("units", 10, 1), keys=None)
            times = columns(slot, joined, KeysNeed("units", 1, 1), keys=None)
        assert cells(found, "k0", "k2", "k1", "n") == [
            (False, "north", date(2024, 1, 1), 1),
            (True, "north", date(2024, 1, 1), 1),
            (True, "south", date(2024, 1, 2), 1),
            (True, None, None, 1),
        ]
        assert cells(times, "k0", "k1", "n") == [(17, JOINED, 1), (200, None, 1), (30, JOINED, 1)]
        assert {type(value) for value in times["k1"]} == {datetime, type(None)}

    @pytest.mark.parametrize(
        ("table", "key", "values", "counts"),
        [
            ("lines", "pieces", (7, 2000, 8, None), (1, 1, 0, 1)),
            ("customers", "age", (None,), (0,)),
            ("customers", "joined", (JOINED, None), (2, 1)),
            ("orders", "weight", (1.0625, -0.0625), (1, 1)),
            ("orders", "amount", (12.34, 99.0), (1, 0)),
            ("orders", "day", (date(2024, 1, 2), date(1999, 1, 1)), (1, 0)),
            ("orders", "shop", (None,), (1,)),
            ("orders", "order_id > 11", (True, False), (2, 2)),
        ],
    )
    def test_public_keys_of_every_type_find_their_rows(
        self, engine: Engine, table: str, key: str, values: tuple[object, ...], counts: tuple[int, ...]
    ) -> None:
        plan = core(f"SELECT {key} AS k, COUNT(*) FROM {table} GROUP BY {key}")
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, plan, EVERY_ROW, keys=keyed(*values))["*.n"]
        assert found == [count * ONE for count in counts]

    def test_no_keys_are_no_rows_and_no_group_by_is_one(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert columns(slot, core(BY_SHOP), EVERY_ROW, keys=keyed())["*.n"] == []
            assert columns(slot, core(COUNTED), EVERY_ROW)["*.n"] == [4 * ONE]

    def test_keys_of_one_question_are_gone_with_it(self, engine: Engine) -> None:
        plan = core(BY_SHOP)
        with engine.slot("shop", SECONDS) as slot:
            work = slot.work(plan, (EVERY_ROW,), SALT)
            for keys, counts in ((SHOPS, [1, 0, 1, 2]), (keyed("north"), [2]), (SHOPS, [1, 0, 1, 2])):
                ((_, table),) = slot.compute(work, keys, SECONDS)
                assert unseal(table)[0]["*.n"].tolist() == [count * ONE for count in counts]

    # --- The prepared copy ---

    def test_a_person_is_one_unit_in_all_tables(self, engine: Engine) -> None:
        lines = core("SELECT COUNT(*) FROM orders JOIN lines USING (order_id)")
        people = core("SELECT COUNT(*) FROM orders JOIN customers ON customer = id")
        with engine.slot("shop", SECONDS) as slot:
            assert columns(slot, lines, EVERY_ROW, UnitsNeed(1)) == {"*.n": [4 * ONE], "units": [3]}
            assert columns(slot, people, EVERY_ROW, UnitsNeed(1)) == {"*.n": [3 * ONE], "units": [2]}

    @pytest.mark.parametrize(("table", "rows", "units"), [("customers", 3, 3), ("orders", 4, 3), ("lines", 4, 3)])
    def test_rows_without_a_unit_are_not_there(self, engine: Engine, table: str, rows: int, units: int) -> None:
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core(f"SELECT COUNT(*) FROM {table}"), EVERY_ROW, UnitsNeed(1))
        assert found == {"*.n": [rows * ONE], "units": [units]}

    @pytest.mark.parametrize(
        ("table", "column", "low", "codes"),
        [
            ("orders", "amount", 0, [0, 1234, 10_000]),
            # 1.0625 / 0.125 = 8.5 rounds up; NaN is no number; infinity is clamped; -0.5 rounds up to 0.
            ("orders", "weight", -80, [0, 9, 80]),
            ("customers", "age", 18, [18, 30, 90]),
        ],
    )
    def test_codes_are_rounded_clamped_and_missing_for_what_is_no_number(
        self, engine: Engine, table: str, column: str, low: int, codes: list[int]
    ) -> None:
        need = HistogramNeed("m0", low, 1, 10_001, LIGHT)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core(f"SELECT MEDIAN({column}) FROM {table}"), need)
        assert sorted(zip(found[POSITION], found["bin"], found["weight"], strict=True)) == [
            (0, code - low, ONE) for code in codes
        ]

    def test_filters_see_what_coding_loses(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            assert columns(slot, core(f"{COUNTED} WHERE amount = 250 OR amount < 0"), EVERY_ROW)["*.n"] == [2 * ONE]

    # --- Bounds ---

    def test_rows_of_a_unit_weigh_no_more_than_their_bound(self, engine: Engine) -> None:
        need = MomentsNeed("m0", 1, RowsWeight(1), 0, 10_000)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core(BY_SHOP), replace(EVERY_ROW, weight=RowsWeight(1)), need, keys=SHOPS)
        assert found["*.n"] == [ONE // 2, 0, ONE, ONE // 2 + ONE]
        assert found["m0.s1"] == [ONE // 2 * 10_000, 0, 0, ONE // 2 * 1234]

    def test_groups_of_a_unit_weigh_no_more_than_their_length(self, engine: Engine) -> None:
        weight = isqrt(ONE * ONE // 2)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core(BY_SHOP), replace(EVERY_ROW, weight=L2Weight(1)), keys=SHOPS)
        assert found["*.n"] == [weight, 0, ONE, weight + ONE]

    def test_sums_of_a_unit_stay_within_their_cap(self, engine: Engine) -> None:
        need = MomentsNeed("m0", 1, UnitSumWeight(5000), 0, 10_000)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core("SELECT SUM(amount) FROM orders"), need)
        assert found == {"m0.us": [ONE * 5000 // 11_234 * 11_234]}

    def test_codes_outside_a_narrower_range_are_clamped_again(self, engine: Engine) -> None:
        need = MomentsNeed("m0", 1, LIGHT, 100, 2000)
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core(BY_SHOP), need, keys=SHOPS)
        assert found["m0.s1"] == [2000 * ONE, 0, 0, (1234 + 100) * ONE]

    # --- Histograms, distinct values, keys, and what finds bounds ---

    def test_candidates_are_counted_where_they_are_listed(self, engine: Engine) -> None:
        plan = core("SELECT COUNT(DISTINCT shop) FROM orders")
        listed = replace(plan, attributes=(replace(plan.attributes[0], domain=("east", "north", "south")),))
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, listed, CandidatesNeed("d0", RowsWeight(1)))
        assert cells(found, POSITION, "bin", "weight") == [(0, 1, ONE // 2 + ONE), (0, 2, ONE // 2)]

    def test_bins_are_counted_per_key(self, engine: Engine) -> None:
        plan = core("SELECT shop, MEDIAN(amount) FROM orders GROUP BY shop")
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, plan, HistogramNeed("m0", 0, 1000, 5, LIGHT), keys=SHOPS)
        assert cells(found, POSITION, "bin", "weight") == [(0, 4, ONE), (3, 0, ONE), (3, 1, ONE)]

    def test_distinct_values_and_units_are_counted_once(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            shops = columns(slot, core("SELECT COUNT(DISTINCT shop) FROM orders"), DistinctNeed("d0", 9))
            units = columns(slot, core(BY_SHOP), UnitsNeed(9), keys=SHOPS)
        assert shops == {"d0.d": [2]}
        assert units == {"units": [1, 0, 1, 2]}

    def test_what_a_unit_keeps_depends_on_the_salt_alone(self, engine: Engine) -> None:
        """Customer 1 has two groups and may keep one: now this, now that, and always the same under one salt."""
        seen = set()
        with engine.slot("shop", SECONDS) as slot:
            for salt in range(20):
                found, again = (columns(slot, core(BY_SHOP), UnitsNeed(1), keys=SHOPS, salt=salt) for _ in range(2))
                assert found == again
                seen.add(tuple(found["units"]))
        assert seen == {(1, 0, 1, 1), (0, 0, 1, 2)}

    @pytest.mark.parametrize(
        ("rule", "half", "one"),
        [("units", 1, 1), ("weighted", isqrt(ONE * ONE // 2), ONE), ("shared", ONE // 2, ONE), ("rows", ONE // 2, ONE)],
    )
    def test_private_keys_are_judged_by_their_rule(self, engine: Engine, rule: Any, half: int, one: int) -> None:
        with engine.slot("shop", SECONDS) as slot:
            every = columns(slot, core(BY_SHOP), KeysNeed(rule, 2, 1), keys=None)
            shared = columns(slot, core(BY_SHOP), KeysNeed(rule, 2, 2), keys=None)
        assert cells(every, "k0", "n") == [("north", half + one), ("south", half), (None, one)]
        assert cells(shared, "k0", "n") == [("north", half + one)]
        assert shared.get("units", [2]) == [2]

    def test_bounds_are_looked_for_in_logarithmic_bins(self, engine: Engine) -> None:
        """12.34 is code 1234, in (2^10, 2^11]; 10,000 is in (2^13, 2^14]; 0 in the first."""
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core("SELECT SUM(amount) FROM orders"), BoundsNeed("m0", 1, 15), keys=None)
        expected = [0] * 30
        expected[0], expected[11], expected[14] = ONE, ONE // 2, ONE // 2
        assert found["weight"] == expected

    def test_caps_are_looked_for_among_the_totals_of_units(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot:
            found = columns(slot, core("SELECT SUM(amount) FROM orders"), UnitTotalsNeed("m0", 1000, 5), keys=None)
        assert cells(found, "bin", "weight") == [(0, ONE), (4, ONE)]

    # --- Work ---

    def test_every_need_is_answered_exactly_once(self, engine: Engine) -> None:
        needs = (EVERY_ROW, MomentsNeed("m0", 1, LIGHT, 0, 10_000), UnitsNeed(1), HistogramNeed("m0", 0, 1, 9, LIGHT))
        with engine.slot("shop", SECONDS) as slot:
            computed = slot.compute(slot.work(core(BY_SHOP), needs, SALT), SHOPS, SECONDS)
            nothing = slot.compute(slot.work(core(BY_SHOP), (), SALT), SHOPS, SECONDS)
        answered = [need for group, _ in computed for need in group]
        assert len(answered) == len(needs)
        assert set(answered) == set(needs)
        assert nothing == []

    def test_what_can_not_be_computed_fails_before_anything_is_and_costs_no_slot(self, engine: Engine) -> None:
        plan = core(BY_SHOP)
        twice = replace(plan, keys=(replace(plan.keys[0], domain=("north", "north")),))
        with engine.slot("shop", SECONDS) as slot:
            with pytest.raises(AssertionError):
                slot.work(twice, (EVERY_ROW,), SALT)
            with pytest.raises(AssertionError):
                slot.work(plan, (HistogramNeed("m0", 0, 0, 1, LIGHT),), SALT)
            assert count_orders(slot) == 4

    def test_a_failure_says_nothing_of_the_data(self, engine: Engine) -> None:
        with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed) as failed:
            columns(slot, failing(), EVERY_ROW)
        assert "north" not in repr(failed.value)
        assert "north" not in str(failed.value.__cause__) + str(failed.value.__context__)

    def test_late_work_is_ended_and_the_next_slot_answers(self, engine: Engine) -> None:
        began = time.monotonic()
        with engine.slot("shop", SECONDS) as slot:
            work = slot.work(slow(), (EVERY_ROW,), SALT)
            with pytest.raises(EngineFailed):
                slot.compute(work, SINGLE, 0.3)
            assert time.monotonic() - began < 5
        with engine.slot("shop", SECONDS) as slot:
            assert count_orders(slot) == 4

    def test_the_deadline_is_for_all_of_the_work(self, engine: Engine) -> None:
        needs = tuple(HistogramNeed("m0", 0, width, 3, LIGHT) for width in range(1, 300))
        with engine.slot("shop", SECONDS) as slot:
            work = slot.work(core(BY_SHOP), needs, SALT)
            began = time.monotonic()
            with pytest.raises(EngineFailed):
                slot.compute(work, SHOPS, 0.1)
            assert time.monotonic() - began < 5

    # --- Turns ---

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
        plan = core("SELECT pieces, COUNT(*) FROM lines GROUP BY pieces")

        def ask(number: int) -> list[Any]:
            keys = keyed(*([99] * number), (5, 7, 2000)[number % 3])
            with engine.slot("shop", SECONDS, caller=str(number % 4)) as slot:
                found: list[Any] = columns(slot, plan, EVERY_ROW, keys=keys)["*.n"]
                return found

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(40))) == [[*([0] * number), ONE] for number in range(40)]

    def test_a_dataset_without_data_is_refused_before_a_slot_is_taken(self, engine: Engine) -> None:
        with pytest.raises(Conflict), engine.slot("nowhere", SECONDS):
            pass

    # --- Public tables and versions ---

    def test_what_a_need_takes_at_worst_is_said_from_public_sizes_alone(self, engine: Engine) -> None:
        sizes = {"orders": PrivateSize(1_000, 100, 20)}
        few = engine.predict(core(COUNTED), (EVERY_ROW,), sizes, 1)
        more = engine.predict(core(COUNTED), (EVERY_ROW,), {"orders": PrivateSize(100_000_000, 100, 20)}, 1)
        assert few is not None
        assert more is not None
        assert 0 < few.seconds < more.seconds
        assert 0 < few.memory_bytes <= more.memory_bytes
        assert "100,000,000 rows of orders" in more.largest
        assert more.remedy

    def test_nothing_is_said_where_a_size_is_not_known(self, engine: Engine) -> None:
        assert engine.predict(core(COUNTED), (EVERY_ROW,), {}, 1) is None

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
            assert count_orders(slot) == 4
            assert slot.data_version == old
            with engine.slot("shop", SECONDS) as later:
                assert later.data_version == new
                assert count_orders(later) == 4
