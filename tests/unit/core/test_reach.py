"""How many rows of a unit a question reaches, and what a bound leaves out of them, in plain arithmetic."""

import pytest

from service.core.reach import Reach, Spread, Z, spread_of
from service.core.sizes import PrivateSize, Profile, PublicSize, size_of_profile

# 10 units with 1 row, 20 with 2, 30 with 3 or 4, 5 with 5 to 8
VISITS = size_of_profile(Profile((10, 20, 30, 5), 0.0, "q_visits"), 8)
ORDERS = size_of_profile(Profile((4, 4), 0.0, "q_orders"), 2)
SIZES = {"visits": VISITS, "orders": ORDERS, "days": PublicSize(7)}


def spread(reach: Reach) -> Spread:
    found = spread_of(reach, SIZES)
    assert found is not None
    return found


def test_lost_rows_of_a_whole_table_lie_between_the_edges_of_its_bins() -> None:
    visits = spread(Reach("visits"))
    assert visits.lost(2, whole=True) == (30 * 1 + 5 * 3, 30 * 2 + 5 * 6)
    assert visits.lost(2) == (0, 30 * 2 + 5 * 6), "under a condition only the upper end holds"
    assert visits.lost(8) == (0, 0)
    assert visits.counted(2) == (10 + 55 * 2, 10 + 55 * 2)


def test_noise_widens_both_ends_by_deviations_of_the_sum() -> None:
    noisy = Spread(8, ((1, 1, 10), (2, 2, 20), (3, 4, 30), (5, 8, 5)), deviation=2.0)
    beyond, within = Z * 2.0 * (2**2 + 6**2) ** 0.5, Z * 2.0 * (1 + 3**2) ** 0.5
    assert noisy.lost(2, whole=True) == (int(45 - within), -int(-(90 + beyond) // 1))


def test_units_beyond_the_most_keep_the_most_and_each_bin_its_own_noise() -> None:
    cut = spread_of(Reach("visits"), {"visits": size_of_profile(Profile((0, 0, 0, 0, 3, 4), 1.0, "q"), 10)})
    assert cut is not None
    assert cut.bins is not None
    assert cut.bins[-2:] == ((9, 10, 3), (9, 10, 4))
    low, high = cut.lost(6, whole=True) or (0, 0)
    noise = Z * (2**2 + 4**2 + 4**2) ** 0.5
    assert high == -int(-(7 * 4 + noise) // 1)
    assert low == max(0, int(7 * 3 - Z * (3**2 + 3**2) ** 0.5))


def test_the_last_bin_ends_at_the_most_that_a_unit_keeps_and_not_at_a_power_of_two() -> None:
    """It holds everybody beyond: one of four units there may have 100 rows."""
    declared = spread_of(Reach("visits"), {"visits": size_of_profile(Profile((0, 0, 4), 0.0, "q"), 100)})
    assert declared is not None
    assert declared.bins == ((1, 1, 0), (2, 2, 0), (3, 100, 4))
    assert declared.lost(10, whole=True) == (0, 4 * 90)
    assert declared.counted(10) == (4 * 3, 4 * 10)


def test_a_public_fan_out_multiplies_the_edges() -> None:
    assert spread(Reach("visits").repeated(7)).lost(14) == (0, 30 * (28 - 14) + 5 * (56 - 14))


def test_a_private_join_multiplies_by_the_most_of_the_other_table() -> None:
    joined = Reach("visits").crossed(Reach("orders"))
    assert joined == Reach("visits", 1, ("orders",))
    assert spread(joined).lost(8) == (0, 5 * (2 * 8 - 8))
    assert spread_of(joined, {"visits": VISITS}) is None, "of a table whose size nobody knows nothing is said"


def test_one_row_of_a_unit_beside_its_others_is_added() -> None:
    left = Reach("orders").beside(Reach(None, constant=1))
    assert left is not None
    assert spread(left).lost(2) == (0, 4)
    assert spread(Reach(None, constant=1)).lost(1) == (0, 0)
    both = Reach("visits").beside(Reach("orders"))
    assert both is None, "two tables of one unit would have to be known together"
    assert Reach("visits").beside(Reach("visits")) == Reach("visits", 2)


def test_without_a_profile_only_the_most_is_known() -> None:
    declared = {"visits": PrivateSize(100, 10, 12)}
    found = spread_of(Reach("visits"), declared)
    assert found is not None
    assert found.lost(12) == (0, 0)
    assert found.lost(11) is None
    assert found.counted(11) is None


def test_groups_limit_what_a_person_can_miss() -> None:
    assert spread(Reach("visits")).lost(2, most=3) == (0, 30 + 5)
    assert spread(Reach("visits")).lost(3, most=3) == (0, 0)


@pytest.mark.parametrize(("bound", "expected"), [(8, 0.0), (6, 5 * (1 + 2) / 4), (4, 5 * 2.5), (2, 30 * 1.5 + 5 * 4.5)])
def test_expected_loss_spreads_units_evenly_in_their_bin(bound: int, expected: float) -> None:
    assert spread(Reach("visits")).expected_lost(bound) == pytest.approx(expected)


def test_bins_within_the_noise_are_empty_when_a_default_is_chosen() -> None:
    noisy = Spread(1024, ((1, 1, 1000), (513, 1024, 19)), deviation=10.0)
    assert noisy.expected_lost(1) == 0
    assert noisy.lost(1)[1] > 19 * 1023, "but a bound on the loss has them in"  # type: ignore[index]
