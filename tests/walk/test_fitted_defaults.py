"""Bounds that nobody gave fit the data's profile: first answers are close to the file, and say what they lack."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import pytest

from service import demo
from service.app import Books, Walk
from service.catalog import kept_bounds
from service.core.errors import DatasetPaused
from service.core.fitted import Basis, FittedBounds
from service.core.reach import Reach
from service.core.request import Ask, AskedBounds
from service.core.sizes import MOST_UNSEEN, Profile, size_of_profile
from tests.fixtures.profiled import BUYER, demo_shop, profile_of, put_size
from tests.fixtures.recorder import NoNoise
from tests.fixtures.slots import answerer_of

VISITS = "SELECT COUNT(*) AS n FROM visits"
PAID = "SELECT COUNT(*) AS n FROM orders WHERE status = 'paid'"
TURNOVER = "SELECT status, SUM(amount) AS turnover FROM orders GROUP BY status"
CLOSE = 0.05


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with demo_shop(tmp_path_factory.mktemp("demo")) as opened:
        yield opened


def without_noise(opened: tuple[Books, Walk], sql: str, **bounds: Any) -> dict[str, Any]:
    """What is left of an answer when its noise is taken away: the value under its bounds."""
    ask = Ask("shop", sql, bounds=AskedBounds(**bounds), fresh=True)
    body = answerer_of(*opened, noise=NoNoise()).submit(ask, BUYER, None, sql, 60).body
    return json.loads(body or b"")  # type: ignore[no-any-return]


def estimate(opened: tuple[Books, Walk], sql: str, **bounds: Any) -> dict[str, Any]:
    return opened[1].answerer.estimate(Ask("shop", sql, bounds=AskedBounds(**bounds)), BUYER)


def listed(keys: int) -> Ask:
    """A question about so many groups, whatever is declared."""
    pages = ", ".join(f"'{at}'" for at in range(keys))
    return Ask("shop", f"SELECT page, COUNT(*) AS n FROM visits WHERE page IN ({pages}) GROUP BY page")


def in_the_file() -> tuple[int, int, dict[str, float]]:
    orders = demo.orders()
    amounts = orders.set_column(2, "amount", pc.min_element_wise(pc.cast(orders["amount"], "float64"), 300.0))
    by_status = amounts.group_by("status").aggregate([("amount", "sum")]).to_pydict()
    paid = orders.filter(pc.equal(orders["status"], "paid")).num_rows
    return demo.visits().num_rows, paid, dict(zip(by_status["status"], by_status["amount_sum"], strict=True))


def test_first_counts_are_close_to_the_file_at_the_default_price(opened: tuple[Books, Walk]) -> None:
    visits, paid, _ = in_the_file()
    for sql, true in ((VISITS, visits), (PAID, paid)):
        answer = without_noise(opened, sql)
        half_width = estimate(opened, sql)["columns"][0]["half_width_95"]
        assert abs(answer["rows"][0][0] - true) + half_width <= CLOSE * true
        assert answer["columns"][0]["clipped_share"] <= 0.4, "an upper end; under a condition a wide one"
    old = without_noise(opened, VISITS, rows_per_unit=20)
    assert old["rows"][0][0] < 0.98 * visits, "the fixed default of before"


def test_turnover_by_status_lacks_less_than_a_twentieth(opened: tuple[Books, Walk]) -> None:
    true = in_the_file()[2]
    answer = without_noise(opened, TURNOVER)
    for status, turnover in answer["rows"]:
        assert turnover == pytest.approx(true[status], rel=CLOSE)
    said = answer["columns"][1]["clipped"]
    assert answer["columns"][1]["clipped_share"] in (0, None), "of a sum no share can be told unless nothing is lost"
    assert said["lost"][1] < 4 * CLOSE * demo.orders().num_rows


def test_an_estimate_names_the_fitted_bounds_and_where_they_come_from(opened: tuple[Books, Walk]) -> None:
    applied = estimate(opened, VISITS)["defaults_applied"]
    assert applied["rows_per_unit"] == 64
    assert applied["bounds_from"].startswith("rows_per_unit: fitted to the profile (q_visits")
    assert estimate(opened, VISITS, rows_per_unit=7)["bounds"]["rows_per_unit"] == 7
    customers = estimate(opened, "SELECT COUNT(*) AS n FROM customers")
    assert customers["bounds"]["rows_per_unit"] == 1, "one row of a customer: no profile is needed"
    assert customers["columns"][0]["clipped_share"] == 0


def test_what_the_old_default_loses_is_said(opened: tuple[Books, Walk]) -> None:
    rows = sorted(demo.visits()["customer_id"].value_counts().field("counts").to_pylist())
    lost = sum(max(0, each - 20) for each in rows)
    answer = without_noise(opened, VISITS, rows_per_unit=20)
    column = answer["columns"][0]
    low, high = column["clipped"]["lost"]
    assert low <= lost <= high
    share = lost / sum(rows)
    assert column["clipped"]["share"][0] <= share <= column["clipped_share"] == column["clipped"]["share"][1]
    assert any("do not count" in note for note in answer["notes"])
    before = estimate(opened, VISITS, rows_per_unit=20)["columns"][0]
    assert before["clipped"]["share_of"] == "table"
    assert before["clipped"]["share"][0] <= share <= before["clipped_share"]


def test_bounds_are_kept_through_another_profile_until_an_admin_accepts_it(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    sql = "SELECT COUNT(*) AS n FROM visits WHERE seconds > 17"
    ask = Ask("shop", sql)
    first = json.loads(walk.answerer.submit(ask, BUYER, None, "kept", 60).body or b"")
    old = books.catalog.schema("shop").sizes["visits"]
    lighter = demo.visits().slice(0, 3_000)
    put_size(books, "shop", "visits", profile_of(lighter, "customer_id", name="q_again"))
    again = json.loads(walk.answerer.submit(ask, BUYER, None, "kept again", 60).body or b"")
    assert again["cost"]["replay_of"] == first["id"], "the same question still"
    kept = next(each for each in books.administration.defaults("shop") if each["table"] == "visits")
    assert kept["before"]["rows_per_unit"] == 64
    assert kept["after"]["rows_per_unit"] != 64
    changed = books.administration.refit("shop", actor="admin00001", reason="profiled again")
    assert {each["table"] for each in changed} >= {"visits"}
    noted = [
        each for each in books.administration.acts(after=0, limit=1000) if each["body"].get("act") == "defaults.refit"
    ]
    assert noted[-1]["who"] == "admin00001"
    anew = walk.answerer.estimate(ask, BUYER)
    assert anew["replay_of"] is None
    assert anew["bounds"]["rows_per_unit"] == kept["after"]["rows_per_unit"]
    put_size(books, "shop", "visits", old)
    books.administration.refit("shop", actor="admin00001", reason="back")
    assert walk.answerer.estimate(ask, BUYER)["replay_of"] == first["id"]


def test_kept_bounds_stay_when_a_new_profile_shows_nobody(opened: tuple[Books, Walk]) -> None:
    """Then nothing fits, and the fixed defaults would make it another question, to be paid for again."""
    books, walk = opened
    ask = Ask("shop", "SELECT COUNT(*) AS n FROM visits WHERE seconds > 23")
    first = json.loads(walk.answerer.submit(ask, BUYER, None, "seen", 60).body or b"")
    old = books.catalog.schema("shop").sizes["visits"]
    put_size(books, "shop", "visits", size_of_profile(Profile((3, -4, 0, 1), 10.0, "q_nobody"), MOST_UNSEEN))
    try:
        estimated = walk.answerer.estimate(ask, BUYER)
        assert estimated["bounds"] == first["receipt"]["bounds"]
        assert "fitted to the profile (q_visits, as first used)" in estimated["defaults_applied"]["bounds_from"]
        again = json.loads(walk.answerer.submit(ask, BUYER, None, "unseen", 60).body or b"")
        assert again["cost"]["replay_of"] == first["id"]
    finally:
        put_size(books, "shop", "visits", old)


def test_who_is_refused_stores_nothing_and_lists_of_keys_share_their_defaults(opened: tuple[Books, Walk]) -> None:
    books, walk = opened

    def stored() -> list[int | None]:
        return [each["groups"] for each in books.administration.defaults("shop")]

    before = stored()
    books.administration.pause("shop", actor="test", reason="")
    for keys in (21, 22):
        with pytest.raises(DatasetPaused):
            walk.answerer.submit(listed(keys), BUYER, None, f"refused {keys}", 60)
    books.administration.resume("shop", actor="test", reason="")
    assert stored() == before
    for keys in (21, 22, 30):
        assert walk.answerer.submit(listed(keys), BUYER, None, f"charged {keys}", 60).body
    assert stored() == [*before, 32]


def test_what_was_stored_for_an_exact_number_of_groups_still_counts(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    ask = listed(40)
    fits = walk.answerer.estimate(ask, BUYER)["bounds"]["rows_per_unit"]
    keep = books.catalog.kept_bounds.keeping(
        "shop", {Basis(Reach("visits"), 40): FittedBounds(fits + 1, 5, ("q_old",))}
    )
    assert keep is not None
    books.store.write(keep)
    assert walk.answerer.estimate(ask, BUYER)["bounds"]["rows_per_unit"] == fits + 1
    assert walk.answerer.submit(ask, BUYER, None, "as before", 60).body
    assert [each["groups"] for each in books.administration.defaults("shop")].count(64) == 0


@pytest.mark.parametrize("moved", ["before the charge", "in its commit"])
def test_a_question_whose_defaults_moved_is_priced_again(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    """Another process stores others after this one has priced, and before or while it charges."""
    books, walk = opened
    keys = {"before the charge": 10, "in its commit": 11}[moved]
    other = FittedBounds(7, 5, ("q_other",))
    kept, done = books.catalog.kept_bounds, []
    keeping = kept.keeping

    def meanwhile(dataset: str, used: Any) -> Any:
        late = keeping(dataset, used) if moved == "in its commit" else None
        if not done:
            write = keeping(dataset, dict.fromkeys(used, other))
            assert write is not None
            done.append(books.store.write(write))
        return late or keeping(dataset, used)

    monkeypatch.setattr(kept, "keeping", meanwhile)
    answer = json.loads(walk.answerer.submit(listed(keys), BUYER, None, moved, 60).body or b"")
    assert answer["receipt"]["bounds"]["rows_per_unit"] == 7


def test_a_dataset_with_as_many_defaults_as_it_may_have_answers_with_fixed_ones(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    books, walk = opened
    monkeypatch.setattr(kept_bounds, "KEPT_MOST", len(books.administration.defaults("shop")))
    ask = Ask("shop", "SELECT COUNT(*) AS n FROM (SELECT amount FROM orders UNION ALL SELECT amount FROM orders) t")
    estimated = walk.answerer.estimate(ask, BUYER)
    assert estimated["bounds"]["rows_per_unit"] == 20
    assert "no more defaults can be stored" in estimated["defaults_applied"]["bounds_from"]
    answer = json.loads(walk.answerer.submit(ask, BUYER, None, "full", 60).body or b"")
    assert answer["receipt"]["bounds"]["rows_per_unit"] == 20


def test_without_a_profile_everything_is_as_before(opened: tuple[Books, Walk]) -> None:
    books, _ = opened
    old = books.catalog.schema("shop").sizes["orders"]
    sql = (
        "SELECT country, COUNT(DISTINCT o.customer_id) AS n, AVG(amount) AS mean"
        " FROM orders o JOIN customers c ON o.customer_id = c.customer_id GROUP BY country"
    )
    assert estimate(opened, sql)["bounds"]["rows_per_unit"] == 32
    put_size(books, "shop", "orders", None)
    try:
        found = estimate(opened, sql)
    finally:
        put_size(books, "shop", "orders", old)
    assert (found["bounds"]["rows_per_unit"], found["bounds"]["groups_per_unit"]) == (20, 5)
    assert "no profile" in found["defaults_applied"]["bounds_from"]
    assert [column["clipped"]["lost"] for column in found["columns"][1:]] == [None, None]
    assert found["columns"][1]["clipped_share"] is None
    assert "not known" in found["columns"][1]["clipped"]["words"]
