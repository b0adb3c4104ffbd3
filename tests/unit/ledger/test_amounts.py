"""Amounts of privacy: exact, or refused."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.amounts import ATTO, CLOSED, PICO, Cost, parse_delta, parse_epsilon, show_atto, show_pico
from service.core.errors import LossOutOfRange

NO_AMOUNT = [
    *("", " ", "NaN", "nan", "sNaN", "-NaN", "Infinity", "inf", "-inf", "1e999", "-1e999", "1e-999", "5e-324"),
    *("0", "-0", "0.0", "0e5", "-1", "-0.1", "-1e-12"),
    *(" 0.1", "0.1 ", "0. 1", "\t1", "1\n", "1_000", "0x10", "1,5", "1/2", "½", "٠.١ ", "0.1f", "true", "None", "--1"),
    *("1e-13", "0.0000000000001", "1.0000000000001", "0.1" + "0" * 40, "9" * 41, "1000001", "1e7", "1e30"),
    *(True, False, None, 0.1, 1.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1e999),
    *(0, -1, 10**7, 2**64, Decimal("NaN"), Decimal("Infinity"), Decimal("-1"), Decimal("1e-13"), Decimal("1e999999")),
    *([], {}, b"0.1", ("0.1",), 1 + 0j),
]


@pytest.mark.parametrize("given_amount", NO_AMOUNT, ids=repr)
def test_what_is_no_amount_of_epsilon_is_refused(given_amount: object) -> None:
    with pytest.raises(LossOutOfRange):
        parse_epsilon(given_amount)


@pytest.mark.parametrize("given_amount", [*NO_AMOUNT, "1", 1, Decimal(1), "1.0", "1e-19"], ids=repr)
def test_what_is_no_amount_of_delta_is_refused(given_amount: object) -> None:
    if given_amount in ("1e-13", "0.0000000000001") or given_amount == Decimal("1e-13"):
        assert parse_delta(given_amount) == ATTO // 10**13
        return
    with pytest.raises(LossOutOfRange):
        parse_delta(given_amount)


@pytest.mark.parametrize(
    ("text", "pico"),
    [
        ("0.1", PICO // 10),
        ("1e-12", 1),
        ("1E-12", 1),
        ("+1", PICO),
        (1, PICO),
        ("1000000", 10**18),
        ("0.30", 3 * PICO // 10),
    ],
)
def test_what_is_an_amount_is_exact(text: object, pico: int) -> None:
    assert parse_epsilon(text) == pico


@given(st.integers(1, 10**18))
def test_every_amount_on_the_grid_survives_being_shown(amount: int) -> None:
    assert parse_epsilon(show_pico(amount)) == amount
    assert parse_epsilon(Decimal(amount) / PICO) == amount
    if amount < ATTO:
        assert parse_delta(show_atto(amount)) == amount


def test_deltas_are_shown_as_people_write_them() -> None:
    assert [show_atto(amount) for amount in (10**12, 5 * 10**11, 10**16)] == ["1e-6", "5e-7", "0.01"]


@given(st.integers(1, 10**15), st.integers(0, 999))
def test_finer_than_the_grid_is_refused_not_rounded(amount: int, rest: int) -> None:
    with pytest.raises(LossOutOfRange):
        parse_epsilon(f"{amount}.{rest}1e-12")


def test_json_numbers_read_as_decimals_are_exact() -> None:
    """The wire reads numbers with parse_float=Decimal: 0.1 is a tenth, and three of them are 0.3."""
    tenth = parse_epsilon(json.loads("0.1", parse_float=Decimal))
    assert 3 * tenth == parse_epsilon("0.3")
    for literal in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(LossOutOfRange):
            parse_epsilon(json.loads(literal, parse_float=Decimal))


@given(st.lists(st.integers(0, CLOSED), min_size=1, max_size=6))
def test_costs_saturate_and_never_pass_the_sentinel(orders: list[int]) -> None:
    total = Cost(tuple(orders)) + Cost((CLOSED,) * len(orders))
    assert total.orders == (CLOSED,) * len(orders)
