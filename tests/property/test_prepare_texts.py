"""Texts within their bytes, on any value: the longest whole beginning, of that value alone, never an error (N6)."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.schema import VARCHAR, Column
from service.engine.duckdb.importing.reading import within_limit

# One to four bytes per character, marks that combine with what stands before, emoji that are several characters,
# right-to-left marks, NUL, the last code point.
AWKWARD = ["a", "é", "e\u0301", "ß", "€", "한", "\u200d", "👩‍👩‍👧", "🏳️‍🌈", "\u202e", "\x00", "\U0010ffff", " ", "'"]
texts = st.one_of(
    st.none(),
    st.text(max_size=40),
    st.lists(st.sampled_from(AWKWARD), max_size=40).map("".join),
    st.builds(lambda part, times: part * times, st.sampled_from(AWKWARD), st.integers(0, 400)),
)
limits = st.one_of(st.integers(1, 12), st.sampled_from([63, 64, 255, 256, 257, 65_535, 65_536]))


def held(values: list[str | None], max_bytes: int, *, key: bool = False) -> list[str | None]:
    """The values through the SQL that preparation runs."""
    column = Column("n", VARCHAR, max_bytes=max_bytes)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE source (i BIGINT, n VARCHAR)")
        database.executemany("INSERT INTO source VALUES ($1, $2)", [list(pair) for pair in enumerate(values)])
        found = database.execute(
            f"SELECT {within_limit(chr(34) + 'n' + chr(34), column, key=key)} FROM source ORDER BY i"
        )
        return [row[0] for row in found.fetchall()]


def beginning(value: str, max_bytes: int) -> str:
    return value.encode()[:max_bytes].decode(errors="ignore")


@settings(max_examples=60, deadline=None)
@given(values=st.lists(texts, min_size=1, max_size=6), max_bytes=limits)
def test_a_text_keeps_its_longest_beginning_that_fits(values: list[str | None], max_bytes: int) -> None:
    found = held(values, max_bytes)
    assert found == [None if value is None else beginning(value, max_bytes) for value in values]
    assert all(kept is None or len(kept.encode()) <= max_bytes for kept in found)


@settings(max_examples=40, deadline=None)
@given(value=texts, others=st.lists(texts, max_size=6), max_bytes=limits, key=st.booleans())
def test_what_becomes_of_a_text_depends_on_it_alone(
    value: str | None, others: list[str | None], max_bytes: int, *, key: bool
) -> None:
    assert held([*others, value], max_bytes, key=key)[-1:] == held([value], max_bytes, key=key)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(texts, min_size=1, max_size=6), max_bytes=limits)
def test_a_key_is_whole_or_missing(values: list[str | None], max_bytes: int) -> None:
    whole = [value if value is not None and len(value.encode()) <= max_bytes else None for value in values]
    assert held(values, max_bytes, key=True) == whole


def test_a_cut_by_characters_would_not_keep_to_the_bytes() -> None:
    """The broken twin: left() alone counts characters, and four times as many bytes pass."""
    value = "🎉" * 300
    with duckdb.connect() as database:
        (broken,) = database.execute("SELECT left($1, 256)", [value]).fetchall()[0]
    assert len(broken.encode()) == 1024
    assert held([value], 256) == ["🎉" * 64]


def test_keys_that_are_cut_would_make_two_people_one() -> None:
    """The broken twin of N6: two ids that differ after their 256th byte."""
    ids: list[str | None] = ["x" * 256 + "1", "x" * 256 + "2"]
    assert len(set(held(ids, 256))) == 1
    assert held(ids, 256, key=True) == [None, None]
    assert held(ids, 257, key=True) == ids


@pytest.mark.parametrize("max_bytes", [1, 3, 65_536])
def test_the_edges_of_a_limit(max_bytes: int) -> None:
    fits, beyond = "y" * max_bytes, "y" * (max_bytes + 1)
    assert held([fits, beyond, ""], max_bytes) == [fits, fits, ""]
