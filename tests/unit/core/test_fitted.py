"""Defaults that fit: the bound that makes bias and noise together smallest, from public sizes alone."""

from dataclasses import replace

from service.core.amounts import PICO
from service.core.fitted import Basis, basis_from_text, basis_to_text, fit_bounds
from service.core.reach import Reach
from service.core.schema import Defaults
from service.core.sizes import PrivateSize, Profile, Size, size_of_profile

HEAVY = (13_520, 14_918, 9_284, 5_541, 3_276, 1_720, 888, 427, 216, 223)
DEFAULTS = Defaults(epsilon=PICO // 2)


def of(counts: tuple[int, ...], most: int, deviation: float = 0.0) -> dict[str, Size]:
    """With an empty last bin, as nearly every profile has one: the last one holds everybody beyond."""
    return {"visits": size_of_profile(Profile((*counts, 0), deviation, "q_profile"), most)}


def rows(sizes: dict[str, Size], groups: int | None = 1, defaults: Defaults = DEFAULTS) -> int | None:
    found = fit_bounds(Basis(Reach("visits"), groups), sizes, defaults)
    return None if found is None else found.rows_per_unit


def test_many_heavy_units_are_worth_their_noise() -> None:
    assert rows(of(HEAVY, 1024)) == 512


def test_a_lower_price_takes_more_bias_for_less_noise() -> None:
    cheap = rows(of(HEAVY, 1024), defaults=replace(DEFAULTS, epsilon=PICO // 1000))
    assert cheap is not None
    assert cheap <= 64


def test_in_many_groups_the_bias_of_each_is_small_and_the_noise_is_not() -> None:
    few, many = rows(of(HEAVY, 1024), 4), rows(of(HEAVY, 1024), 1000)
    assert few == 512
    assert many is not None
    assert many < few
    assert rows(of(HEAVY, 1024), None) == rows(of(HEAVY, 1024), 10), "keys that nobody declared: ten are assumed"


def test_where_everybody_has_one_row_one_counts() -> None:
    assert rows(of((5_000,), 2)) == 1


def test_one_unit_with_all_rows_is_not_worth_its_noise() -> None:
    assert rows(of((1_000, *([0] * 19), 1), 2**21, deviation=10.0)) == 1


def test_a_profile_in_which_nothing_stands_out_fits_nothing() -> None:
    assert rows(of((3, -12, 7, 0), 20, deviation=10.0)) is None
    assert rows(of((), 20)) is None


def test_without_a_profile_of_the_table_and_all_it_is_joined_with_nothing_is_fitted() -> None:
    assert rows({}) is None
    assert rows({"visits": PrivateSize(1_000, 100, 64)}) is None
    assert fit_bounds(Basis(Reach("visits", 1, ("orders",)), 1), of(HEAVY, 1024), DEFAULTS) is None
    assert fit_bounds(Basis(Reach(None, constant=1), 1), of(HEAVY, 1024), DEFAULTS) is None


def test_nobody_is_in_more_groups_than_there_are_or_than_they_have_rows() -> None:
    def groups(sizes: dict[str, Size], declared: int | None) -> int:
        found = fit_bounds(Basis(Reach("visits"), declared), sizes, DEFAULTS)
        assert found is not None
        return found.groups_per_unit

    assert groups(of(HEAVY, 1024), 3) == 3
    assert groups(of(HEAVY, 1024), None) == 5
    assert groups(of((900, 900), 2), 12) == 2


def test_one_percent_of_noise_does_not_move_the_choice() -> None:
    shaken = tuple(count + shift for count, shift in zip(HEAVY, (30, -25, 14, -31, 8, 22, -9, 12, -18, 6), strict=True))
    assert rows(of((*shaken, 11, -7), 1024, deviation=15.0)) == 512


def test_a_basis_is_read_as_it_was_written() -> None:
    basis = Basis(Reach("visits", 3, ("orders",), 1), None)
    assert basis_from_text(basis_to_text(basis)) == basis
    assert basis.digest != Basis(Reach("visits", 3, ("orders",), 1), 1).digest


def test_many_groups_are_rounded_up_so_that_lists_of_keys_make_few_kinds_of_questions() -> None:
    visits = Reach("visits")
    for few in (None, 1, 3, 16):
        assert Basis(visits, few).rounded == Basis(visits, few)
    assert [Basis(visits, many).rounded.groups for many in (17, 32, 33, 1000)] == [32, 32, 64, 1024]
    assert len({Basis(visits, many).rounded for many in range(1, 10_000)}) == 16 + 10
