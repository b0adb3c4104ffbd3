"""Profiles from import to schema: bought once, kept, cut by, told to admins, and drawn again only when one asks.

Budgets here are so large that the default share leaves no noise: what is released can be compared to the row.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.app import Books, open_books
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.core.errors import AnswerFailed, BudgetExhausted, CatalogRefused, Conflict, LossOutOfRange, NotFound
from service.core.events import GaussianEvent, LaplaceEvent
from service.core.sizes import BINS, MOST_UNSEEN, PrivateSize, size_of_profile
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.ledger.allowances import DATASET_FAILURES_ALLOWED
from service.ledger.book import Hold, Ledger
from service.privacy.accounting.costs import cost
from service.settings import Settings
from service.store.migrate import upgrade
from service.upkeep.reconciling import Reconciling
from service.walk import profiling
from tests.fixtures.flaky_store import FlakyWrites, Way

ORDERS: dict[str, Any] = {
    "source": {"kind": "parquet", "path": "orders.parquet"},
    "private": True,
    "unit": {"column": "person"},
    "columns": {"order_id": {"unique": True}},
}
LINES: dict[str, Any] = {
    "source": {"kind": "parquet", "path": "lines.parquet"},
    "private": True,
    "unit": {"via": {"column": "order_id", "references": "orders.order_id"}},
}
SOME = {1: 1, 2: 1, 3: 2, 4: 40}  # orders by person


@contextmanager
def shop(folder: Path, **declared: Any) -> Iterator[Books]:
    """A dataset without tables; with the budget that it has by default a profile has no noise."""
    settings = Settings(data_dir=folder)
    settings.source_folders[0].mkdir(parents=True, exist_ok=True)
    upgrade(settings.store_url)
    books = open_books(settings)
    wanted = {"unit": "person", "epsilon": "100000", "weak": True, **declared}
    books.administration.put_dataset("shop", DatasetDeclaration.model_validate(wanted), actor="test")
    try:
        yield books
    finally:
        books.close()


@contextmanager
def another(folder: Path) -> Iterator[Books]:
    """Another process over the same store and the same prepared data."""
    opened = open_books(Settings(data_dir=folder))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with shop(tmp_path) as opened:
        yield opened


def write(folder: Path, orders: dict[int, int], lines_each: int = 1) -> None:
    owners = [person for person, count in orders.items() for _ in range(count)]
    ids = pa.array(range(len(owners)), pa.int64())
    sources = folder / "sources"
    pq.write_table(pa.table({"order_id": ids, "person": pa.array(owners, pa.int64())}), sources / "orders.parquet")
    lines = [order for order in range(len(owners)) for _ in range(lines_each)]
    pq.write_table(pa.table({"order_id": pa.array(lines, pa.int64())}), sources / "lines.parquet")


def put(books: Books, table: str = "orders", **more: Any) -> str:
    """Import, and hand back what the admin is told."""
    declared = TableDeclaration.model_validate({**(ORDERS if table == "orders" else LINES), **more})
    import_id = books.administration.put_table("shop", table, declared, actor="test")
    books.administration.wait("shop", table)
    ended = books.catalog.find_import(import_id)
    assert ended["state"] == "done", ended["detail"]
    return str(ended["detail"])


def charges(books: Books) -> list[str]:
    """Who was charged, in order."""
    return [entry.who for entry in books.ledger.entries(dataset="shop", limit=1000) if entry.kind == "reserve"]


def counts(books: Books, table: str = "orders") -> dict[int, int]:
    """Bins that are not empty, as released."""
    released = books.catalog.profiles("shop")[table].profile.counts
    assert len(released) == BINS
    return {at: count for at, count in enumerate(released) if count}


def size(books: Books, table: str = "orders") -> PrivateSize:
    found = books.catalog.schema("shop").sizes[table]
    assert isinstance(found, PrivateSize)
    return found


def test_the_first_import_buys_a_profile_and_later_ones_use_it(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    told = put(books)
    assert counts(books) == {0: 2, 1: 1, 6: 1}
    assert "Its profile cost epsilon 100 and is shown to analysts: about 4 persons" in told
    assert (size(books).most, size(books).profile) == (128, books.catalog.profiles("shop")["orders"].profile)
    assert charges(books) == ["import"]
    assert books.ledger.balance("shop").spent == (100 * 10**12,)
    before = books.catalog.profiles("shop")
    write(tmp_path, {**SOME, 5: 9})
    assert put(books) == ""
    books.administration.delete_table("shop", "orders", actor="test", reason="")
    put(books)
    assert books.catalog.profiles("shop") == before, "no second draw, not even of a table that went and came back"
    assert charges(books) == ["import"]
    assert books.ledger.verify().holds


def test_a_unit_keeps_what_the_profile_shows_and_what_hangs_on_it_goes_along(books: Books, tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(20), 2), lines_each=3)
    put(books), put(books, "lines")
    assert (size(books).most, size(books, "lines").most) == (4, 16)
    assert counts(books, "lines") == {3: 20}
    write(tmp_path, {**dict.fromkeys(range(20), 2), 99: 60}, lines_each=30)
    told = put(books)
    assert told.startswith("56.0% of the rows are beyond the 4 that one unit keeps and were left out.")
    assert "lines, which was built anew with it, has 2 times the rows that its profile allows for" in told
    assert size(books, "lines").most == 16
    assert size(books) == size_of_profile(books.catalog.profiles("shop")["orders"].profile, 4)
    assert books.catalog.schema("shop").tables["orders"].max_rows_per_unit is None, "never a clamp of totals"


def test_a_declared_cap_wins_over_the_profile_and_lower_ones_let_children_be_profiled_again(
    books: Books, tmp_path: Path
) -> None:
    write(tmp_path, SOME, lines_each=2)
    assert "56.8% of the rows are beyond max_rows_per_unit" in put(books, max_rows_per_unit=15)
    assert counts(books) == {0: 2, 1: 1, 6: 1}, "the profile is of the rows before they are cut"
    assert size(books) == size_of_profile(books.catalog.profiles("shop")["orders"].profile, 15)
    put(books, "lines")
    assert counts(books, "lines") == {1: 2, 2: 1, 5: 1}, "30 lines of the orders that were kept"
    assert "Profile what hangs on this table again: lines." in put(books, max_rows_per_unit=20)
    assert "again" not in put(books, max_rows_per_unit=20)


def test_an_admin_who_asks_pays_anew_and_the_cut_follows_at_the_next_import(books: Books, tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(20), 2))
    put(books)
    write(tmp_path, dict.fromkeys(range(30), 9))
    assert "55.6% of the rows are beyond the 4" in put(books)
    released = books.administration.profile("shop", "orders", "0.01", actor="boss", reason="it grew")
    assert counts(books) == {2: 30}, "of the copy that serves, in which nobody has more than four"
    assert released.epsilon == "1000"
    assert (size(books), released.profile.kept) == (size_of_profile(released.profile, 4), 8)
    assert charges(books) == ["import", "import"]
    act = [entry for entry in books.ledger.entries(dataset="shop", limit=1000) if entry.kind == "note"][-1]
    assert (act.who, "table.profile" in act.body, "it grew" in act.body) == ("boss", True, True)
    put(books)
    assert size(books).most == 8
    assert charges(books) == ["import", "import"]


def test_what_hangs_on_a_table_is_cut_by_its_new_profile_and_its_size_says_so(books: Books, tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(20), 2), lines_each=2)
    put(books), put(books, "lines", profile=None, max_rows_per_unit=4, expected_rows=80)
    books.administration.delete_table("shop", "lines", actor="test", reason="")
    put(books, "lines", max_rows_per_unit=None)
    assert size(books, "lines").most == 8
    released = books.administration.profile("shop", "lines", "0.01", actor="boss", reason="")
    write(tmp_path, dict.fromkeys(range(20), 2), lines_each=9)
    put(books, "lines")
    again = books.administration.profile("shop", "lines", "0.01", actor="boss", reason="it grew")
    assert (released.profile.kept, size(books, "lines").most, again.profile.kept) == (8, 8, 16)
    put(books)
    assert size(books, "lines") == size_of_profile(again.profile, 16), "built anew with the table that it hangs on"


def test_a_new_profile_lets_promises_of_time_start_again(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SOME)
    put(books)
    small = cost(LaplaceEvent(Fraction(1), Fraction(1000)), books.ledger.terms("shop"))
    books.ledger.reserve(Hold("q_late", "shop", "analyst001", "asked", small, 1))
    assert books.ledger.late("q_late") == 8
    with monkeypatch.context() as patched:
        patched.setattr(profiling, "release_profile", lambda *_: 1 // 0)
        with pytest.raises(AnswerFailed):
            books.administration.profile("shop", "orders", None, actor="boss", reason="")
    assert books.ledger.balance("shop").safety == 8, "nothing is known anew"
    books.administration.profile("shop", "orders", None, actor="boss", reason="")
    assert books.ledger.balance("shop").safety == 4
    [reset] = [entry for entry in books.ledger.entries(dataset="shop", limit=1000) if entry.kind == "safety"]
    assert (reset.who, "a new profile of orders" in reset.body) == ("boss", True)
    assert books.ledger.verify().holds


def test_a_table_that_outgrows_its_profile_is_told_to_admins_only(books: Books, tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(10), 2))
    put(books)
    write(tmp_path, dict.fromkeys(range(200), 2))
    assert put(books) == "The table has 18 times the rows that its profile allows for: profile it again."
    assert size(books).rows == 22, "the size that was released, with its slack"


def test_without_a_profile_sizes_are_declared_or_unknown(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    assert "Sizes are not known: questions wait until the deadline." in put(books, profile=None)
    assert books.catalog.schema("shop").sizes == {}
    assert put(books, profile=None, expected_rows=50, max_rows_per_unit=50) == ""
    assert size(books) == PrivateSize(50, 50, 50, None)
    assert "Sizes are not known" in put(books, profile=None, expected_rows=50)
    assert books.catalog.schema("shop").sizes == {}, "what was known does not stay when it is not true any more"
    write(tmp_path, {1: 20, 2: 20, 3: 10})
    told = put(books, profile=None, expected_rows=5, max_rows_per_unit=20)
    assert told.endswith(
        "has 10 times the rows that its declaration allows for: declare expected_rows anew, or profile it."
    )
    assert charges(books) == []
    released = books.administration.profile("shop", "orders", None, actor="test", reason="")
    assert size(books) == size_of_profile(released.profile, 20)


def test_what_to_do_about_unknown_sizes_is_said_and_helps(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    assert put(books, profile=None).endswith("or profile the table and import it again."), "a copy that was not cut"
    assert put(books, profile=None, max_rows_per_unit=15).endswith("Declare expected_rows, or profile the table.")
    released = books.administration.profile("shop", "orders", None, actor="test", reason="")
    assert size(books) == size_of_profile(released.profile, 15), "a unit keeps 15, which was declared and cut to"


def test_a_profile_of_a_table_that_was_never_cut_gives_a_size_at_the_next_import(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    put(books, profile=None)
    books.administration.profile("shop", "orders", None, actor="test", reason="")
    assert books.catalog.schema("shop").sizes == {}, "in the copy that serves a unit may have any number of rows"
    put(books, profile=None)
    assert size(books).most == 128


def test_a_budget_that_has_no_room_lets_the_import_through(tmp_path: Path) -> None:
    with shop(tmp_path, ceiling={"epsilon": "100000"}, epsilon="0.5") as books:
        write(tmp_path, SOME)
        told = put(books)
        assert "No profile was bought: 'shop' has epsilon 0.5 left" in told
        assert "Sizes are not known" in told
        assert (charges(books), books.catalog.profiles("shop")) == ([], {})
        with pytest.raises(BudgetExhausted):
            books.administration.profile("shop", "orders", None, actor="test", reason="")
        books.administration.grant("shop", "100000", None, actor="test", reason="more")
        assert "Its profile cost" in put(books), "nothing was charged before, so this is still the first"


def test_a_paused_dataset_is_imported_without_a_profile(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    books.administration.pause("shop", actor="test", reason="")
    assert "No profile was bought: queries to 'shop' are paused" in put(books)
    assert charges(books) == []


def fill_the_allowance(books: Books) -> list[str]:
    """As many queries run as may fail: those of ten people."""
    small = cost(LaplaceEvent(Fraction(1), Fraction(1000)), books.ledger.terms("shop"))
    held = [f"q_held{at}" for at in range(DATASET_FAILURES_ALLOWED)]
    for at, query_id in enumerate(held):
        books.ledger.reserve(Hold(query_id, "shop", f"analyst{at:03}", query_id, small, 1))
    return held


def test_an_import_goes_through_while_queries_fill_the_allowance(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SOME)
    held = fill_the_allowance(books)
    monkeypatch.setattr(profiling, "ROOM_WAIT_S", 0.2)
    told = put(books)
    assert "No profile was bought: as many queries run as may still fail" in told
    assert "Nothing was charged; a later import tries again. Sizes are not known" in told
    assert "import" not in charges(books)
    for query_id in held:
        books.ledger.settle(query_id, "answered")
    assert "Its profile cost" in put(books)
    assert charges(books).count("import") == 1


def test_an_import_waits_for_room_as_queries_do(books: Books, tmp_path: Path) -> None:
    write(tmp_path, SOME)
    held = fill_the_allowance(books)
    soon = threading.Timer(2.0, books.ledger.settle, (held[0], "answered"))
    soon.start()
    try:
        assert "Its profile cost" in put(books)
    finally:
        soon.join()


def test_a_profile_bought_between_two_steps_of_an_import_is_what_sizes_follow(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process buys it when the new copy is ready and its size is not written down yet."""
    write(tmp_path, dict.fromkeys(range(20), 2))
    put(books)
    write(tmp_path, dict.fromkeys(range(30), 4))
    finish, released = books.catalog.finish_import, []

    def meanwhile(*given: Any, **named: Any) -> None:
        with another(tmp_path) as other:
            released.append(other.administration.profile("shop", "orders", "0.01", actor="boss", reason=""))
        finish(*given, **named)

    monkeypatch.setattr(books.catalog, "finish_import", meanwhile)
    put(books)
    assert counts(books) == {2: 30}
    assert size(books) == size_of_profile(released[0].profile, 4)


def test_a_profile_is_of_the_copy_that_was_counted_whatever_served_before(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process imports after the admin has asked and before anything is counted."""
    write(tmp_path, SOME)
    put(books)
    counted = DuckDBImporter.counted

    def meanwhile(*given: Any) -> Any:
        put(books, max_rows_per_unit=7)
        return counted(*given)

    monkeypatch.setattr(DuckDBImporter, "counted", meanwhile)
    with another(tmp_path) as other:
        released = other.administration.profile("shop", "orders", "0.01", actor="boss", reason="")
    assert size(books) == size_of_profile(released.profile, 7)


def test_a_table_that_was_deleted_while_its_files_are_still_there_stops_no_import(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SOME)
    put(books), put(books, "lines")
    books.catalog.delete_table("shop", "lines", lambda *noted: None)
    monkeypatch.setattr(Reconciling, "reconcile", lambda *given: set())
    assert put(books) == ""
    assert set(books.catalog.schema("shop").sizes) == {"orders"}


def test_a_profile_that_failed_after_its_charge_is_not_drawn_again_by_itself(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SOME)
    with monkeypatch.context() as patched:
        patched.setattr(profiling, "release_profile", lambda *_: 1 // 0)
        assert "The profile could not be completed; its charge stays. Profile the table to buy another." in put(books)
    assert books.ledger.balance("shop").failures == 1
    told = put(books)
    assert "was charged before and did not complete. It is not drawn again by itself" in told
    assert (charges(books), books.catalog.profiles("shop")) == (["import"], {})
    books.administration.profile("shop", "orders", None, actor="test", reason="")
    assert charges(books) == ["import", "import"]
    put(books)
    assert size(books).most == 128


def test_a_crash_between_charge_and_settle_is_settled_by_recovery_and_paid_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with shop(tmp_path) as books:
        write(tmp_path, SOME)
        with monkeypatch.context() as patched:
            patched.setattr(profiling, "release_profile", die)
            books.administration.put_table("shop", "orders", TableDeclaration.model_validate(ORDERS), actor="test")
            with pytest.raises(Killed):
                books.administration.wait("shop", "orders")
    with shop(tmp_path) as books:
        assert len(books.ledger.recover()) == 1
        assert "did not complete" in put(books)
        assert charges(books) == ["import"]
        assert books.ledger.verify().holds


def test_gaussian_noise_is_used_where_pure_epsilon_is_closed_already(tmp_path: Path) -> None:
    with shop(tmp_path, epsilon="10", delta="1e-6") as books:
        write(tmp_path, SOME)
        put(books)
        first = books.catalog.profiles("shop")["orders"]
        assert "Laplace" in first.noise and first.rho is None
        put(books, "lines", profile=None)
        close_infinity(books)
        second = books.administration.profile("shop", "lines", None, actor="test", reason="")
        assert "Gaussian" in second.noise and second.epsilon is None
        assert max(books.ledger.balance("shop").left) > 0


def close_infinity(books: Books) -> None:
    event = GaussianEvent(Fraction(1), Fraction(10**6))
    hold = Hold("q_gauss", "shop", "someone", "hash", cost(event, books.ledger.terms("shop")), 1)
    books.ledger.reserve(hold)
    books.ledger.settle("q_gauss", "answered")


@pytest.mark.parametrize(
    ("orders", "bins", "most"),
    [({}, {}, MOST_UNSEEN), (dict.fromkeys(range(30), 1), {0: 30}, 2), ({7: 3000}, {12: 1}, 8192)],
    ids=["an empty table", "everybody has one row", "one person has all rows"],
)
def test_tables_at_the_edge_have_profiles(
    books: Books, tmp_path: Path, orders: dict[int, int], bins: dict[int, int], most: int
) -> None:
    write(tmp_path, orders)
    put(books)
    assert (counts(books), size(books).most) == (bins, most)
    assert size(books).rows >= 1


def test_what_can_not_be_profiled_is_refused_before_anything_is_charged(books: Books, tmp_path: Path) -> None:
    profile = books.administration.profile
    with pytest.raises(NotFound):
        profile("shop", "nowhere", None, actor="test", reason="")
    write(tmp_path, SOME)
    put(books, "lines", private=False, unit=None)
    with pytest.raises(CatalogRefused, match="public"):
        profile("shop", "lines", None, actor="test", reason="")
    bad = TableDeclaration.model_validate({**ORDERS, "columns": {"person": {"unique": True}}})
    books.administration.put_table("shop", "orders", bad, actor="test")
    books.administration.wait("shop", "orders")
    with pytest.raises(NotFound, match="imported"):
        profile("shop", "orders", None, actor="test", reason="")
    put(books)
    for share in ("0", "-1", "0.2", "7", "much", True):
        with pytest.raises(LossOutOfRange):
            profile("shop", "orders", share, actor="test", reason="")
    assert charges(books) == ["import"]


def test_nothing_is_profiled_while_it_is_imported(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[type[Exception]] = []
    release = profiling.release_profile

    def meanwhile(*given: Any) -> Any:
        for table in ("orders", "lines"):  # the same one, and another of the dataset
            try:
                books.administration.profile("shop", table, None, actor="test", reason="")
            except Exception as error:
                seen.append(type(error))
        return release(*given)

    write(tmp_path, SOME)
    put(books, profile=None), put(books, "lines", profile=None)
    with monkeypatch.context() as patched:
        patched.setattr(profiling, "release_profile", meanwhile)
        put(books)
    assert seen == [Conflict, Conflict]
    assert charges(books) == ["import"]


def test_a_failed_profile_of_an_admin_keeps_its_charge(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SOME)
    put(books)
    before = books.catalog.profiles("shop")
    monkeypatch.setattr(profiling, "release_profile", lambda *_: 1 // 0)
    with pytest.raises(AnswerFailed):
        books.administration.profile("shop", "orders", None, actor="test", reason="")
    assert books.catalog.profiles("shop") == before
    assert charges(books) == ["import", "import"]


@pytest.mark.parametrize("way", ["before", "after"])
def test_a_profile_whose_settle_raised_leaves_no_hold_open_and_counts_if_it_was_stored(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    write(tmp_path, SOME)
    put(books)
    before, settle = books.catalog.profiles("shop"), Ledger.settle
    flaky = FlakyWrites(books.store, monkeypatch)

    def breaking(ledger: Ledger, query_id: str, outcome: str, *more: object, **named: object) -> None:
        if outcome == "answered":
            flaky.fail(way)
        settle(ledger, query_id, outcome, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "settle", breaking)
    if way == "before":
        with pytest.raises(AnswerFailed):
            books.administration.profile("shop", "orders", None, actor="test", reason="")
        assert books.catalog.profiles("shop") == before
    else:
        books.administration.profile("shop", "orders", None, actor="test", reason="")
        assert books.catalog.profiles("shop") != before
    events = books.ledger.allowance("shop")
    assert (events.open_holds, events.failures) == (0, way == "before")
