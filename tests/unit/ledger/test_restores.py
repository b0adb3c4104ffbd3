"""A ledger restored from a backup is noticed, and accepting it gives no budget back. Real files, both stores."""

import json
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from service.core.amounts import CLOSED
from service.core.errors import BudgetExhausted, Conflict, LedgerRestored
from service.ledger import restore
from service.ledger.book import By, Hold, Ledger
from service.ledger.charges import Charges
from service.ledger.high_water import thinned
from service.ledger.marks import Mark, MarkedAccount
from service.ledger.windows import WindowKind
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, GRANT, TERMS, ask, fresh_url
from tests.fixtures.postgres import server

WHY = By("hk_admin", "restored after a disk was lost")


@dataclass
class Place:
    """A store and a data folder; the store can be put back to what it was."""

    kind: str
    url: str
    folder: Path

    @property
    def mark(self) -> Path:
        return self.folder / "journal-mark.json"

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        store = Store(self.url)
        ledger = Ledger(store, self.mark)
        try:
            yield ledger
        finally:
            ledger.close()
            store.close()

    def backup(self) -> Callable[[], None]:
        """Copies the store; what it gives back puts the copy in its place."""
        if self.kind == "sqlite":
            file, copy = Path(self.url.removeprefix("sqlite:///")), self.folder / "backup.db"
            shutil.copy(file, copy)
            return lambda: _put_back(copy, file)
        name = self.url.split("?")[0].rsplit("/", 1)[1]
        _run(f"CREATE DATABASE {name}_backup TEMPLATE {name}")
        return lambda: _run(f"DROP DATABASE {name}", f"CREATE DATABASE {name} TEMPLATE {name}_backup")


def _put_back(copy: Path, file: Path) -> None:
    for beside in file.parent.glob(f"{file.name}-*"):
        beside.unlink()
    shutil.copy(copy, file)


def _run(*statements: str) -> None:
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]


def spend(ledger: Ledger, asked: Hold) -> None:
    """A charge that is answered: an open one would take room from the next."""
    ledger.reserve(asked)
    ledger.settle(asked.query_id, "answered")


def run(ledger: Ledger, owner: str) -> str:
    asked = ask(principal=f"hk_{owner}", owner=owner)
    ledger.reserve(asked)
    return asked.query_id


def roll(place: Place, dataset: str = "shop") -> None:
    """A window of a day is set, and the day is over."""
    with place.ledger() as ledger:
        ledger.set_window(dataset, "day", ADMIN)
    store = Store(place.url)
    moved = f"UPDATE account SET window_id = '2020-01-01' WHERE dataset = '{dataset}'"
    store.write(lambda tx: tx.exec_driver_sql(moved) and None)
    store.close()


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Place:
    made = Place(kind, fresh_url(kind), tmp_path)
    with made.ledger() as ledger:
        ledger.open_account("shop", TERMS, GRANT, ADMIN)
        spend(ledger, ask((10, 20, 30), delta=1))
    return made


def test_an_unchanged_ledger_is_no_restore(place: Place) -> None:
    with place.ledger() as ledger:
        assert ledger.restored() is None
        spend(ledger, ask())
        with pytest.raises(Conflict):
            ledger.accept_restore(WHY)


def test_the_mark_is_for_this_user_alone(place: Place) -> None:
    assert stat.S_IMODE(place.mark.stat().st_mode) == 0o600
    assert json.loads(place.mark.read_text())["marks"][-1]["accounts"]["shop"]["spent"] == [10, 20, 30]


def test_a_restored_ledger_charges_nothing_until_it_is_accepted(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask((100, 200, 300), delta=50))
    put_back()
    with place.ledger() as ledger:
        assert ledger.balance("shop").spent == (10, 20, 30), "it has forgotten"
        for _ in range(2):
            with pytest.raises(LedgerRestored) as refused:
                spend(ledger, ask())
        assert "accept-restore" in str(refused.value.extra["remedy"])
        assert ledger.balance("shop").spent == (10, 20, 30)
        assert ledger.accept_restore(WHY) == ["shop"]
        balance = ledger.balance("shop")
        assert (balance.spent, balance.delta_spent) == ((110, 220, 330), 51)
        spend(ledger, ask())
        assert ledger.verify().holds
    with place.ledger() as ledger:
        assert ledger.restored() is None, "accepted once is accepted"


def test_a_mark_is_never_overwritten_by_a_ledger_that_lacks_it(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask((100, 200, 300)))
    put_back()
    marked = place.mark.read_bytes()
    with place.ledger() as ledger:
        for _ in range(5):
            ledger.note("table.inspect", {"subject": "shop.orders"}, ADMIN)  # entries beyond the marked number
        ledger.mark()
        with pytest.raises(LedgerRestored):
            spend(ledger, ask())
    assert place.mark.read_bytes() == marked


def test_another_process_that_refuses_goes_on_after_the_acceptance(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask())
    put_back()
    with place.ledger() as serving:
        with pytest.raises(LedgerRestored):
            spend(serving, ask())
        with place.ledger() as command_line:
            command_line.accept_restore(WHY)
        spend(serving, ask())


def test_spending_never_passes_the_ceiling_however_often_it_is_restored(place: Place) -> None:
    """Whoever restores the same backup again and again, and accepts: what was really charged stays within the grant."""
    put_back = place.backup()
    charged = [(10, 20, 30)]
    for _ in range(4):
        with place.ledger() as ledger:
            if ledger.restored() is not None:
                ledger.accept_restore(WHY)
            for _ in range(3):
                try:
                    spend(ledger, ask((60, 90, 150)))
                    charged.append((60, 90, 150))
                except BudgetExhausted:
                    break
            assert ledger.verify().holds
        put_back()
    total = [sum(cost[at] for cost in charged) for at in range(3)]
    assert any(spent <= limit for spent, limit in zip(total, GRANT.limits, strict=True))
    assert len(charged) > 3, "and something was charged at all"


def test_what_is_more_than_the_limit_leaves_nothing_and_no_grant_is_accepted(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask((380, 570, 950)))
    put_back()
    with place.ledger() as ledger:
        ledger.accept_restore(WHY)
    # A second branch: again everything, which the accepted ledger then forgets, too.
    with place.ledger() as ledger:
        assert ledger.balance("shop").left == (10, 10, 20)
    marked = json.loads(place.mark.read_text())
    marked["marks"][-1]["hash"] = "f" * 64
    marked["marks"] = marked["marks"][-1:]
    place.mark.write_text(json.dumps(marked))
    with place.ledger() as ledger:
        ledger.accept_restore(WHY)
        balance = ledger.balance("shop")
        assert balance.spent == (780, 1180, 1960), "nothing was in common, so all of it counts twice"
        assert not any(balance.left)
        with pytest.raises(BudgetExhausted):
            spend(ledger, ask((1, 1, 1)))
        with pytest.raises(Conflict):
            ledger.grant("shop", GRANT, ADMIN)
        assert ledger.verify().holds


def test_an_account_that_was_opened_since_comes_back_with_what_it_spent(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        ledger.open_account("clinic", TERMS, GRANT, ADMIN)
        spend(ledger, ask((5, 6, 7), delta=3, dataset="clinic"))
    put_back()
    with place.ledger() as ledger:
        assert ledger.accept_restore(WHY) == ["clinic"]
        balance = ledger.balance("clinic")
        assert (balance.spent, balance.delta_spent, balance.limits) == ((5, 6, 7), 3, GRANT.limits)
        assert ledger.verify().holds


def test_failures_that_were_forgotten_count_again(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        asked = ask()
        ledger.reserve(asked)
        ledger.settle(asked.query_id, "failed")
    put_back()
    with place.ledger() as ledger:
        ledger.accept_restore(WHY)
        assert ledger.balance("shop").failures == 1
        assert ledger.verify().holds


def test_persons_failures_and_late_answers_and_the_safety_factor_come_back(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        late = run(ledger, "ann")
        ledger.late(late)
        ledger.settle(late, "failed")
        ledger.settle(run(ledger, "bob"), "failed")
    put_back()
    with place.ledger() as ledger:
        assert ledger.balance("shop").safety == 4, "it has forgotten"
        ledger.accept_restore(WHY)
        balance, ann, bob = ledger.balance("shop"), ledger.allowance("shop", "ann"), ledger.allowance("shop", "bob")
        assert (balance.failures, balance.late, balance.safety) == (2, 1, 8)
        assert (ann.failures, ann.late, bob.failures, bob.late) == (1, 1, 1, 0)
        assert ledger.verify().holds


def test_what_was_spent_before_a_window_that_the_backup_does_not_know_counts_too(place: Place) -> None:
    """Set and rolled after the backup: the newest mark's window has only what came after the roll."""
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask((100, 200, 300), delta=10))
    roll(place)
    with place.ledger() as ledger:
        spend(ledger, ask((5, 6, 7), delta=1))
        assert ledger.balance("shop").spent == (5, 6, 7)
    put_back()
    with place.ledger() as ledger:
        assert ledger.accept_restore(WHY) == ["shop"]
        balance = ledger.balance("shop")
        assert (balance.spent, balance.delta_spent) == ((115, 226, 337), 12)
        assert ledger.verify().holds


def test_what_was_charged_ever_is_the_same_however_often_it_was_marked(place: Place) -> None:
    """Added up from mark to mark, or from the first entry where a mark does not say."""
    with place.ledger() as ledger:
        spend(ledger, ask((100, 200, 300), delta=10))
    roll(place)
    with place.ledger() as ledger:
        spend(ledger, ask((5, 6, 7), delta=1))
    added_up = json.loads(place.mark.read_text())["marks"]
    assert added_up[-1]["accounts"]["shop"]["charged"] == {"orders": [115, 226, 337], "delta": 12}
    for name in ("charged", "kind", "late", "safety", "persons"):
        for mark in added_up:
            mark["accounts"].get("shop", {}).pop(name, None)
    place.mark.write_text(json.dumps({"format": "halftone-mark/1", "marks": added_up}))
    with place.ledger() as ledger:
        spend(ledger, ask((1, 1, 1)))
    newest = json.loads(place.mark.read_text())["marks"][-1]
    assert newest["accounts"]["shop"]["charged"] == {"orders": [116, 227, 338], "delta": 12}


@pytest.mark.parametrize(
    ("window", "started", "kind", "marked", "counts"),
    [
        (None, None, None, None, 30),
        (None, None, "day", "2026-05-16", 30),
        ("day", "2026-05-16", "day", "2026-05-15", 0),
        ("day", "2026-05-16", "day", "2026-05-16", 20),
        ("day", "2026-05-16", None, None, 20),
        ("day", "2026-05-16", "month", "2026-05-01", 20),
        ("month", "2026-05-01", "day", "2026-05-16", 30),
    ],
)
def test_what_counts_in_the_window_of_the_restored_account(  # 30 were charged since the common mark, 20 in the window
    place: Place, window: WindowKind | None, started: str | None, kind: str | None, marked: str | None, counts: int
) -> None:
    account = MarkedAccount("{}", 1, 0, (1,), 0, (20,), 0, 0, marked, kind)
    with place.ledger() as ledger:
        balance = replace(ledger.balance("shop"), window=window, window_started=started)
    assert restore._counting(balance, account, Charges((30,), 0)) == Charges((counts,), 0)


def test_an_account_that_was_opened_since_has_its_window_back(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        ledger.open_account("clinic", TERMS, GRANT, ADMIN)
        spend(ledger, ask((100, 200, 300), dataset="clinic"))
    roll(place, "clinic")
    with place.ledger() as ledger:
        spend(ledger, ask((5, 6, 7), dataset="clinic"))
    put_back()
    with place.ledger() as ledger:
        assert ledger.accept_restore(WHY) == ["clinic"]
        balance = ledger.balance("clinic")
        assert (balance.spent, balance.window) == ((5, 6, 7), "day")
        assert ledger.verify().holds


def test_an_empty_ledger_beside_old_data_is_another_ledger(place: Place) -> None:
    place.url = fresh_url(place.kind)
    with place.ledger() as ledger:
        assert ledger.restored() is not None
        ledger.accept_restore(WHY)
        assert ledger.balance("shop").spent == (10, 20, 30)


def test_a_closed_order_stays_closed(place: Place) -> None:
    put_back = place.backup()
    with place.ledger() as ledger:
        spend(ledger, ask((CLOSED, 1, CLOSED)))
    put_back()
    with place.ledger() as ledger:
        ledger.accept_restore(WHY)
        assert ledger.balance("shop").spent == (CLOSED, 21, CLOSED)
        assert ledger.verify().holds


def test_marks_are_thinned_and_the_oldest_are_not_lost() -> None:
    account = MarkedAccount("{}", 1, 0, (1,), 0, (0,), 0, 0, None)
    marks: list[Mark] = []
    for number in range(1, 3000):
        marks = thinned([*marks, Mark(number, f"{number}", {"shop": replace(account, spent=(number,))})])
    assert len(marks) < 20
    assert [mark.number for mark in marks] == sorted(mark.number for mark in marks)
    assert marks[-1].number == 2999
    gaps = [2999 - mark.number for mark in marks[:-1]]
    assert all(far <= 4 * near for far, near in pairwise(gaps)), "no gap in between"
