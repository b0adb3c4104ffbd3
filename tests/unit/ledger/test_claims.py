"""Files are people: one budget per real file, for ever, on both stores."""

import threading
from dataclasses import replace

import pytest

from service.core.errors import Conflict
from service.ledger.book import By, Ledger
from service.ledger.claims import SourceFile, Wanted
from tests.fixtures.ledgers import ADMIN

JAN = SourceFile("/sources/orders/jan.csv", "1:10", "c-jan")
FEB = SourceFile("/sources/orders/feb.csv", "1:11", "c-feb")
FOLDER = Wanted("shop", "orders", True, (FEB, JAN))


def claims(ledger: Ledger) -> int:
    return sum(entry.kind == "source" for entry in ledger.entries())


def refused(ledger: Ledger, wanted: Wanted, *words: str) -> Conflict:
    before = claims(ledger)
    with pytest.raises(Conflict) as caught:
        ledger.claim_files(wanted, ADMIN)
    for word in words:
        assert word in caught.value.detail
    assert claims(ledger) == before, "a refused claim leaves nothing"
    return caught.value


def test_claiming_again_is_nothing_new(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    ledger.claim_files(FOLDER, ADMIN)
    assert claims(ledger) == 1


@pytest.mark.parametrize("files", [(JAN,), (FEB,), (JAN, FEB), (SourceFile("/x.csv", "1:12", "c-x"), JAN)])
def test_whatever_overlaps_is_the_same_people(ledger: Ledger, files: tuple[SourceFile, ...]) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    refused(ledger, Wanted("twin", "orders", True, files), "'shop'", "same people")


def test_one_file_first_and_the_folder_around_it_later_is_refused_too(ledger: Ledger) -> None:
    ledger.claim_files(Wanted("shop", "january", True, (JAN,)), ADMIN)
    refused(ledger, replace(FOLDER, dataset="twin"), "'shop'", "jan.csv")


def test_a_file_that_joins_the_folder_is_claimed_at_that_import(ledger: Ledger) -> None:
    ledger.claim_files(Wanted("shop", "orders", True, (JAN,)), ADMIN)
    ledger.claim_files(FOLDER, ADMIN)
    refused(ledger, Wanted("twin", "feb", True, (FEB,)), "'shop'")


def test_a_hard_link_is_the_same_file_by_its_inode(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    link = SourceFile("/sources/link.csv", JAN.inode, "changed since")
    refused(ledger, Wanted("twin", "orders", True, (link,)), "'shop'")
    reused = Wanted("twin", "orders", True, (link,), strangers=frozenset({JAN.path}))
    ledger.claim_files(reused, ADMIN)


def test_the_journal_tells_when_a_file_was_last_seen_as_it_was_claimed(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    ledger.claim_files(replace(FOLDER, files=(replace(JAN, content="written to"),)), ADMIN)
    ledger.claim_files(replace(FOLDER, files=(replace(JAN, inode="1:99", content="replaced"),)), ADMIN)
    seen = [entry.at for entry in ledger.entries() if entry.kind == "source"]
    claimed = {file.path: file for file in ledger.claimed_files()}
    assert ledger.last_seen(claimed[JAN.path]) == seen[1]
    assert ledger.last_seen(claimed[FEB.path]) == seen[0]
    assert ledger.last_seen(replace(claimed[FEB.path], inode=JAN.inode)) == ""


def test_a_link_that_was_seen_before_the_transaction_is_the_same_file(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    link = SourceFile("/sources/link.csv", "1:99", "c-99")
    refused(ledger, Wanted("twin", "orders", True, (link,), links={link.path: JAN.path}), "'shop'")


def test_what_is_private_is_public_nowhere(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    for dataset in ("shop", "twin"):
        refused(ledger, Wanted(dataset, "calendar", False, (JAN,)), "'shop'", "public nowhere")
        refused(ledger, Wanted(dataset, "calendar", False, (JAN,), reason="a reason does not help"), "public nowhere")


@pytest.mark.parametrize(
    ("dataset", "private", "matters"),
    [("shop", True, False), ("twin", True, True), ("shop", False, True), ("twin", False, True)],
)
def test_a_copy_of_a_private_file_needs_a_reason(ledger: Ledger, dataset: str, private: bool, matters: bool) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    wanted = Wanted(dataset, "copy", private, (SourceFile("/sources/copy.csv", "1:50", JAN.content),))
    if matters:
        problem = refused(ledger, wanted, "copy of orders/jan.csv", "'shop'")
        assert "reason" in str(problem.extra["remedy"])
    ledger.claim_files(replace(wanted, reason="other people, made up for a test"), ADMIN)
    if matters:
        assert ledger.entries()[-1].body.find("made up for a test") > 0, "the journal keeps the reason"


def test_a_private_copy_of_a_public_file_needs_a_reason(ledger: Ledger) -> None:
    ledger.claim_files(Wanted("shop", "calendar", False, (JAN,)), ADMIN)
    copy = SourceFile("/sources/copy.csv", "1:50", JAN.content)
    refused(ledger, Wanted("shop", "people", True, (copy,)), "public in 'shop'")
    ledger.claim_files(Wanted("shop", "people", True, (JAN,)), ADMIN)


def test_content_that_came_later_is_known_too(ledger: Ledger) -> None:
    ledger.claim_files(FOLDER, ADMIN)
    ledger.claim_files(replace(FOLDER, files=(FEB, replace(JAN, content="c-new"))), ADMIN)
    copy = SourceFile("/sources/copy.csv", "1:50", "c-new")
    refused(ledger, Wanted("twin", "orders", True, (copy,)), "copy of")


def test_a_duckdb_file_belongs_to_one_budget_and_its_other_tables_may_be_public_with_a_reason(ledger: Ledger) -> None:
    slips = SourceFile("/sources/till.duckdb", "1:20", "c-till", "slips")
    ledger.claim_files(Wanted("shop", "slips", True, (slips,)), ADMIN)
    wards = replace(slips, inner="wards")
    refused(ledger, Wanted("twin", "wards", True, (wards,)), "'shop'")
    refused(ledger, Wanted("shop", "slips", False, (slips,), reason="no"), "public nowhere")
    refused(ledger, Wanted("shop", "wards", False, (wards,)), "other tables of sources/till.duckdb are private")
    ledger.claim_files(Wanted("shop", "wards", False, (wards,), reason="names of wards"), ADMIN)
    ledger.claim_files(Wanted("shop", "wards", True, (wards,)), ADMIN)


def test_of_many_admins_at_once_one_gets_the_file(ledger: Ledger) -> None:
    """Private in one dataset, private in another, public in a third: the checks are in the claiming transaction."""
    wishes = [Wanted(f"d{at}", "t", True, (JAN,)) for at in range(4)]
    got: list[str] = []
    ready = threading.Barrier(len(wishes))

    def claim(wanted: Wanted) -> None:
        ready.wait()
        try:
            ledger.claim_files(wanted, By("hk_admin", "a race"))
        except Conflict:
            return
        got.append(wanted.dataset)

    threads = [threading.Thread(target=claim, args=(wanted,)) for wanted in wishes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert [file.dataset for file in ledger.claimed_files()] == got
