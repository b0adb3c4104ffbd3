"""Names of stored primitives: read as they were written, and left alone where a later version wrote them."""

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.boundary import Primitive
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS
from service.privacy.primitives.chosen import ChosenValue
from service.privacy.primitives.names import CHOICE_NAMED, read, written
from service.privacy.primitives.noised import CAPPED_SUM, CENTRED_VARIANCE, VECTORS, Clip, Part

FIRST_VERSION = {
    "capped m0 0 10000 cap 60000 laplace 2": Part(CAPPED_SUM, "m0", 0, 10000, "cap", 60000, LAPLACE, Fraction(2)),
    "quantile m1 1/2 -3 2 50 4 2999999999/500000000 gaussian 1/8": ChosenValue(
        CHOICE_NAMED["quantile"], "m1", Fraction(1, 2), -3, 2, 50, 4, Fraction(2999999999, 500000000), GAUSSIAN,
        Fraction(1, 8),
    ),
}  # fmt: skip
sources = st.sampled_from(["*", "units", "m0", "m17", "d3", "-"])
whole = st.integers(-(2**200), 2**200)
amounts = st.fractions(0, 10**6).filter(bool)
laws = st.sampled_from(LAWS)
clips = st.sampled_from(get_args(Clip))
parts = st.builds(Part, st.sampled_from(VECTORS), sources, whole, whole, clips, whole, laws, amounts)
chosen = st.builds(
    ChosenValue, st.sampled_from(list(CHOICE_NAMED.values())), sources, st.fractions(0, 1), whole, whole, whole, whole,
    amounts | st.just(Fraction(0)), laws, amounts | st.just(Fraction(0)),
)  # fmt: skip


@given(item=parts | chosen)
def test_what_is_written_is_read_as_the_same_value(item: Part | ChosenValue) -> None:
    assert read(written(item)) == item


@pytest.mark.parametrize("text", FIRST_VERSION)
def test_a_text_of_the_first_version_is_read_and_written_again_to_the_byte(text: str) -> None:
    assert read(text) == FIRST_VERSION[text]
    assert written(FIRST_VERSION[text]) == text


@given(one=parts, other=parts)
def test_two_parts_share_a_name_only_if_they_are_equal(one: Part, other: Part) -> None:
    assert (written(one) == written(other)) == (one == other)
    assert written(replace(one, amount=one.amount + 1)) != written(one)


@pytest.mark.parametrize(
    "text", ["v2 capped m0 0 100 cap 60000 laplace 2", "v17 {}", "cubes m0 0 10 rows 1 laplace 1", "skew m0 0 1"]
)
def test_what_a_later_version_wrote_is_left_alone(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    "text",
    ["count * 1 1 rows 4 laplace", "count * one 1 rows 4 laplace 2", "count * 1 1 ropes 4 laplace 2",
     "count * 1 1 rows 4 cauchy 2", "min m0 0 0 1 9 1 1 laplace"],
)  # fmt: skip
def test_a_name_that_no_version_wrote_is_a_bug_and_not_a_primitive(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        read(text)


def test_only_primitives_of_this_house_have_names() -> None:
    with pytest.raises(AssertionError):
        written(Primitive())


def test_names_in_the_store_stay_what_they_are() -> None:
    assert {vector.name for vector in VECTORS} >= {
        "count", "sum", "capped", "mean", "variance", "centred-mean", "centred-variance", "units", "distinct",
        "count+rows", "mean+rows", "variance+rows", "centred-mean+rows", "centred-variance+rows",
    }  # fmt: skip
    assert written(Part(CENTRED_VARIANCE, "m0", 0, 9, "l2", 2, GAUSSIAN, Fraction(1, 3))) == (
        "centred-variance m0 0 9 l2 2 gaussian 1/3"
    )
