"""Files are people: overlaps, links, copies, public and private, over HTTP with real files."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from service.admin import COMMAND_LINE
from service.catalog.declare import TableDeclaration
from service.catalog.tables import table
from service.core.errors import Conflict
from service.engine.file_facts import born_at, facts_of
from service.engine.sources import Source
from service.ledger.book import By
from service.ledger.claims import list_fingerprint
from service.ledger.journal import Journal, canonical_json
from service.ledger.tables import entry
from service.ledger.tables import source as list_claim
from service.store.transaction import Transaction
from service.upkeep import claiming
from service.upkeep.claiming import TableSource, source_of
from tests.fixtures.claimed import private, public, put, refused, write
from tests.fixtures.service import House, open_house


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = open_house(tmp_path, requests_per_minute=1_000_000)
    opened.ask("PUT", "/v1/datasets/twin", json={"unit": "customer", "epsilon": "3"})
    yield opened
    opened.close()


@pytest.fixture
def sources(house: House, tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    (folder / "orders").mkdir()
    for number, month in enumerate(("jan", "feb")):
        write(folder / "orders" / f"{month}.parquet", number)
    return folder


@pytest.mark.parametrize("first", ["orders", "orders/*.parquet", "orders/jan.parquet"])
@pytest.mark.parametrize("second", ["orders", "orders/*.parquet", "orders/j*", "orders/jan.parquet"])
def test_folder_pattern_and_file_are_the_same_people(house: House, sources: Path, first: str, second: str) -> None:
    assert put(house, "shop.orders", private(first)).status_code == 202
    assert refused(house, "twin.orders", private(second), "'shop'")["dataset"] == "shop"
    assert put(house, "shop.again", private(second)).status_code == 202, "the same budget"


def test_links_are_the_file_that_they_lead_to(house: House, sources: Path) -> None:
    put(house, "shop.orders", private("orders"))
    os.link(sources / "orders" / "jan.parquet", sources / "hard.parquet")
    os.symlink(sources / "orders" / "jan.parquet", sources / "soft.parquet")
    for path in ("hard.parquet", "soft.parquet"):
        refused(house, "twin.orders", private(path), "'shop'")
        refused(house, "twin.orders", public(path), "'shop'", "public nowhere")


def test_a_link_to_a_file_that_was_replaced_since_is_found(house: House, sources: Path) -> None:
    """The claimed file has another inode by now; the new one is the same people, the old number is anybody's."""
    put(house, "shop.orders", private("orders"))
    write(sources / "new.parquet", 7)
    os.replace(sources / "new.parquet", sources / "orders" / "jan.parquet")
    os.link(sources / "orders" / "jan.parquet", sources / "hard.parquet")
    refused(house, "twin.orders", private("hard.parquet"), "'shop'")


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize(
    ("born", "same"), [("2020-01-01T00:00:00.000Z", True), ("2999-01-01T00:00:00.000Z", False), ("", False)]
)
def test_a_file_that_was_moved_and_then_changed_is_the_file_that_it_was(
    house: House, sources: Path, monkeypatch: pytest.MonkeyPatch, born: str, same: bool, replaced: bool
) -> None:
    """Its inode is that of the claim. A new file that was given the number is younger than the claim."""
    put(house, "shop.orders", private("orders/jan.parquet"))
    os.rename(sources / "orders" / "jan.parquet", sources / "moved.parquet")
    write(sources / "moved.parquet", 7)
    if replaced:
        write(sources / "orders" / "jan.parquet", 8)
    monkeypatch.setattr(claiming, "born_at", lambda _: born)
    if same:
        refused(house, "twin.orders", private("moved.parquet"), "'shop'")
        refused(house, "twin.open", public("moved.parquet"), "'shop'", "public nowhere")
        assert put(house, "shop.moved", private("moved.parquet")).status_code == 202, "the same budget"
    else:
        assert put(house, "twin.orders", private("moved.parquet")).status_code == 202


def test_when_a_file_was_made_does_not_change_with_it(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    before = datetime.now(UTC) - timedelta(seconds=1)  # the system's clock of files moves in steps
    file.write_text("a\n1\n")
    born = born_at(str(file))
    os.utime(file, (0, 0))
    file.write_text("a\n2\n")
    assert born == born_at(str(file.rename(tmp_path / "b.csv")))
    assert not born or before < datetime.fromisoformat(born) < datetime.now(UTC)
    assert born_at(str(tmp_path / "none.csv")) == ""


def test_private_first_then_public_nowhere(house: House, sources: Path) -> None:
    put(house, "shop.orders", private("orders"))
    for name in ("shop.open", "twin.open"):
        refused(house, name, public("orders/jan.parquet"), "private in 'shop'", "public nowhere")
        refused(house, name, public("orders", reason="a reason does not help"), "public nowhere")
    house.ask("DELETE", "/v1/datasets/shop/tables/orders")
    refused(house, "shop.open", public("orders/jan.parquet"), "public nowhere")


def test_public_first_then_private_once_the_public_table_is_gone(house: House, sources: Path) -> None:
    put(house, "twin.open", public("orders/jan.parquet"))
    for name in ("shop.orders", "twin.orders", "twin.open"):
        body = refused(house, name, private("orders"), "public in twin.open")
        assert body["remedy"] == "delete that table first"
    house.ask("DELETE", "/v1/datasets/twin/tables/open")
    assert put(house, "shop.orders", private("orders")).status_code == 202
    refused(house, "twin.open", public("orders/jan.parquet"), "public nowhere")


def test_a_public_table_that_took_another_file_frees_the_first(house: House, sources: Path) -> None:
    put(house, "twin.open", public("orders/jan.parquet"))
    put(house, "twin.open", public("orders/feb.parquet"))
    assert put(house, "shop.orders", private("orders/jan.parquet")).status_code == 202
    refused(house, "shop.more", private("orders/feb.parquet"), "public in twin.open")


def test_a_copy_is_pointed_out_and_needs_a_reason(house: House, sources: Path) -> None:
    put(house, "shop.orders", private("orders"))
    shutil.copy(sources / "orders" / "jan.parquet", sources / "copy.parquet")
    for declared in (private("copy.parquet"), public("copy.parquet")):
        body = refused(house, "twin.copy", declared, "copy of orders/jan.parquet", "'shop'")
        assert (body["copy_of"], "reason" in body["remedy"]) == ("orders/jan.parquet", True)
    assert put(house, "shop.copy", private("copy.parquet")).status_code == 202, "the same budget needs none"
    os.rename(sources / "copy.parquet", sources / "moved.parquet")
    refused(house, "twin.copy", private("moved.parquet"), "'shop'")
    shutil.copy(sources / "moved.parquet", sources / "other.parquet")
    refused(house, "twin.copy", private("other.parquet"), "copy of")
    reason = "made-up people, the same rows on purpose"
    assert put(house, "twin.copy", private("other.parquet", reason=reason)).status_code == 202
    entries = house.ask("GET", "/v1/datasets/twin/ledger").json()
    claimed = [entry["body"] for entry in entries if entry["kind"] == "source"]
    assert [(body["why"], [file["path"][-13:] for file in body["files"]]) for body in claimed] == [
        (reason, ["other.parquet"])
    ]
    assert house.ask("GET", "/v1/datasets/twin/declaration").json()["tables"]["copy"]["reason"] == reason
    assert house.ask("POST", "/v1/ledger/verify").json()["holds"]


def test_a_duckdb_file_is_one_budgets_and_other_tables_of_it_need_a_reason(house: House, sources: Path) -> None:
    with duckdb.connect(str(sources / "till.duckdb")) as till:
        till.execute("CREATE TABLE slips AS SELECT i AS slip, i % 5 AS customer_id FROM range(50) t(i)")
        till.execute("CREATE TABLE wards AS SELECT i AS customer_id FROM range(3) t(i)")
    assert put(house, "shop.slips", private("till.duckdb", kind="duckdb", inner="slips")).status_code == 202
    refused(house, "twin.wards", private("till.duckdb", kind="duckdb", inner="wards"), "'shop'")
    refused(house, "shop.open", public("till.duckdb", kind="duckdb", inner="main.slips", reason="x"), "public nowhere")
    wards = public("till.duckdb", kind="duckdb", inner="wards")
    refused(house, "shop.wards", wards, "other tables of sources/till.duckdb are private")
    assert put(house, "shop.wards", {**wards, "reason": "names of wards"}).status_code == 202


def test_a_duckdb_table_has_one_name(house: House, sources: Path) -> None:
    with duckdb.connect(str(sources / "staff.duckdb")) as staff:
        staff.execute("CREATE SCHEMA hr")
        staff.execute("CREATE TABLE hr.people AS SELECT i AS customer_id FROM range(50) t(i)")
        staff.execute('CREATE TABLE "main.wards" AS SELECT i AS customer_id FROM range(3) t(i)')
    assert put(house, "shop.people", private("staff.duckdb", kind="duckdb", inner="hr.people")).status_code == 202
    for name in ("people", "main.wards", "main.main.wards"):
        response = put(house, "shop.open", public("staff.duckdb", kind="duckdb", inner=name, reason="about nobody"))
        assert (response.status_code, "write schema.table" in response.json()["detail"]) == (422, True)
    refused(house, "shop.open", public("staff.duckdb", kind="duckdb", inner="hr.people", reason="x"), "public nowhere")


def test_a_duckdb_file_is_not_public_as_a_file_of_another_kind(house: House, sources: Path) -> None:
    with duckdb.connect(str(sources / "till.csv")) as till:
        till.execute("CREATE TABLE slips AS SELECT i AS customer_id FROM range(50) t(i)")
    assert put(house, "shop.slips", private("till.csv", kind="duckdb", inner="slips")).status_code == 202
    administration = house.books.administration
    as_text = TableSource("shop", "open", False, Source("csv", "till.csv"), reason="about nobody")
    wanted = administration._claiming.wanted(as_text)
    with pytest.raises(Conflict, match="public nowhere"):
        house.books.ledger.claim_files(wanted, By("test", ""))


def test_a_table_without_schema_that_was_claimed_before_may_be_of_any(house: House, sources: Path) -> None:
    with duckdb.connect(str(sources / "staff.duckdb")) as staff:
        staff.execute("CREATE SCHEMA hr")
        staff.execute("CREATE TABLE hr.people AS SELECT i AS customer_id FROM range(50) t(i)")
    declare_as_before(house, "shop.people", private("staff.duckdb", kind="duckdb", inner="people"))
    refused(house, "shop.open", public("staff.duckdb", kind="duckdb", inner="hr.people", reason="x"), "public nowhere")
    assert put(house, "shop.people", private("staff.duckdb", kind="duckdb", inner="hr.people")).status_code == 202


def test_a_parent_is_imported_again_beside_followers_that_needed_a_reason(house: House, sources: Path) -> None:
    pq.write_table(pa.table({"customer_id": list(range(5))}), sources / "people.parquet")
    put(house, "twin.orders", private("orders"))
    shutil.copy(sources / "orders" / "jan.parquet", sources / "copy.parquet")
    people = private("people.parquet", columns={"customer_id": {"unique": True}})
    via = {"unit": {"via": {"column": "customer_id", "references": "people.customer_id"}}}
    assert put(house, "shop.people", people).status_code == 202
    refused(house, "shop.orders", {**private("copy.parquet"), **via}, "copy of")
    follower = {**private("copy.parquet", reason="made-up people"), **via}
    assert put(house, "shop.orders", follower).status_code == 202
    assert put(house, "shop.people", people).status_code == 202
    assert house.books.catalog.schema("shop").versions == {"people": 3, "orders": 3}


def test_a_file_of_a_deleted_datasets_public_table_is_freed_as_the_remedy_says(house: House, sources: Path) -> None:
    put(house, "twin.open", public("orders/jan.parquet"))
    assert house.ask("DELETE", "/v1/datasets/twin").status_code == 204
    body = refused(house, "shop.orders", private("orders"), "public in twin.open")
    assert "declare it again, delete the table" in body["remedy"]
    assert house.ask("DELETE", "/v1/datasets/twin/tables/open").status_code == 404
    assert house.ask("PUT", "/v1/datasets/twin", json={"unit": "customer", "epsilon": "3"}).status_code in (200, 201)
    assert house.ask("DELETE", "/v1/datasets/twin/tables/open").status_code == 204
    assert house.ask("DELETE", "/v1/datasets/twin").status_code == 204
    assert put(house, "shop.orders", private("orders")).status_code == 202


def test_what_joins_a_folder_after_the_claim_is_not_opened_by_that_import(
    house: House, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    administration = house.books.administration
    queue = administration._queue
    carry_out = queue._import

    def late(*given: Any) -> None:
        write(sources / "orders" / "march.parquet", 3)
        carry_out(*given)

    monkeypatch.setattr(queue, "_import", late)
    put(house, "shop.orders", private("orders"))
    prepared = administration._importer.prepared("shop")
    assert prepared is not None
    assert [file[-11:] for file in prepared.tables["orders"].files or ()] == ["feb.parquet", "jan.parquet"]
    monkeypatch.undo()
    put(house, "shop.orders", private("orders"))
    refused(house, "twin.march", private("orders/march.parquet"), "'shop'")


@pytest.mark.parametrize("when", ["before it is read", "while it is read"])
def test_a_file_that_changes_between_its_claim_and_its_import_is_refused(
    house: House, sources: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Else a copy of a known file could be swapped in after the hashes were compared."""
    put(house, "twin.orders", private("orders/feb.parquet"))
    administration = house.books.administration
    child = administration._importer._child  # type: ignore[attr-defined]
    run = child.run

    def swap(job: dict[str, Any], *more: Any) -> Any:
        if job["do"] != "build":
            return run(job, *more)
        answer = run(job, *more) if when == "while it is read" else None
        old = (sources / "orders" / "jan.parquet").stat()
        shutil.copy(sources / "orders" / "feb.parquet", sources / "orders" / "jan.parquet")
        os.utime(sources / "orders" / "jan.parquet", ns=(old.st_atime_ns, old.st_mtime_ns))
        return answer or run(job, *more)

    monkeypatch.setattr(child, "run", swap)
    response = house.ask("PUT", "/v1/datasets/shop/tables/orders", json=private("orders/jan.parquet"))
    administration.wait("shop", "orders")
    state = house.ask("GET", response.headers["location"]).json()
    assert (state["state"], "changed while" in state["detail"]) == ("failed", True)
    monkeypatch.undo()
    refused(house, "shop.orders", private("orders/jan.parquet"), "copy of orders/feb.parquet")


def test_of_an_admin_who_makes_it_public_and_one_who_makes_it_private_one_is_refused(
    house: House, sources: Path
) -> None:
    administration = house.books.administration
    for turn in range(6):
        write(sources / f"t{turn}.parquet", 100 + turn)
        wishes = {"shop": private(f"t{turn}.parquet"), "twin": public(f"t{turn}.parquet")}
        done: list[str] = []
        ready = threading.Barrier(2)

        def declare(dataset: str, wish: dict[str, Any], turn: int, done: list[str], ready: threading.Barrier) -> None:
            ready.wait()
            try:
                administration.put_table(dataset, f"t{turn}", TableDeclaration.model_validate(wish), actor="test")
                done.append(dataset)
            except Conflict:
                pass

        threads = [threading.Thread(target=declare, args=(*wish, turn, done, ready)) for wish in wishes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 1
        administration.wait(done[0], f"t{turn}")


def test_a_file_that_has_not_changed_is_hashed_once_and_a_changed_one_again(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n1\n")
    first = facts_of([file])
    assert facts_of([file]) == first
    file.write_text("a\n2\n")
    assert facts_of([file])[0].content != first[0].content


# --- Claims of lists, as the first version made them -----------------------------------------------


def declare_as_before(house: House, name: str, declared: dict[str, Any]) -> None:
    """What the first version left behind: a hash of the list of files, and the entry of the declaration."""
    dataset, table = name.split(".")
    model = TableDeclaration.model_validate(declared)
    administration = house.books.administration
    inner = model.source.table or ""
    files = [str(path) for path in administration._importer.files(source_of(model.source))]
    fingerprint = list_fingerprint(files, inner)

    def note(tx: Transaction, act: str, subject: str, change: Any) -> None:
        if model.private:
            tx.execute(list_claim.insert().values(fingerprint=fingerprint, dataset=dataset))
            Journal.lock(tx).append(
                "source", {"fingerprint": fingerprint, "why": f"import of {subject}"}, who="hk_a", dataset=dataset
            )
        administration._note(COMMAND_LINE, dataset, "")(tx, act, subject, change)

    house.books.catalog.begin_import(dataset, table, model, note)


@pytest.mark.parametrize("how", ["start", "no start"])
def test_claims_of_lists_are_carried_over_to_their_files(house: House, sources: Path, how: str) -> None:
    declare_as_before(house, "shop.orders", private("orders"))
    if how == "start":
        house.books.administration.start()
    refused(house, "twin.jan", private("orders/jan.parquet"), "'shop'")
    refused(house, "twin.jan", public("orders/jan.parquet"), "public nowhere")
    assert house.ask("POST", "/v1/ledger/verify").json()["holds"]
    entries = house.books.ledger.verify().entries
    house.books.administration.start()
    assert house.books.ledger.verify().entries == entries, "once is enough"


def test_a_claimed_file_that_is_gone_is_still_claimed(house: House, sources: Path) -> None:
    declare_as_before(house, "shop.orders", private("orders/jan.parquet"))
    (sources / "orders" / "jan.parquet").unlink()
    house.books.administration.start()
    write(sources / "orders" / "jan.parquet", 9)
    refused(house, "twin.orders", private("orders"), "'shop'")


def test_a_list_whose_files_are_gone_is_still_refused_as_that_list(house: House, sources: Path) -> None:
    declare_as_before(house, "shop.orders", private("orders/*.parquet"))
    kept = {path.name: path.read_bytes() for path in (sources / "orders").iterdir()}
    shutil.rmtree(sources / "orders")
    house.books.administration.start()
    (sources / "orders").mkdir()
    for name, content in kept.items():
        (sources / "orders" / name).write_bytes(content)
    refused(house, "twin.orders", private("orders"), "'shop'")


def test_where_two_old_claims_overlap_the_exact_one_and_then_the_first_keeps_the_file(
    house: House, sources: Path
) -> None:
    declare_as_before(house, "shop.orders", private("orders"))
    declare_as_before(house, "twin.jan", private("orders/jan.parquet"))
    house.books.administration.start()
    owners = {file.path[-11:]: file.dataset for file in house.books.ledger.claimed_files()}
    assert owners == {"feb.parquet": "shop", "jan.parquet": "shop"}
    refused(house, "twin.jan", private("orders/jan.parquet"), "'shop'")


def test_a_file_that_joined_a_folder_goes_to_whoever_claimed_just_it(house: House, sources: Path) -> None:
    declare_as_before(house, "shop.orders", private("orders"))
    write(sources / "orders" / "march.parquet", 3)
    declare_as_before(house, "twin.march", private("orders/march.parquet"))
    house.books.administration.start()
    owners = {file.path.rsplit("/", 1)[1]: file.dataset for file in house.books.ledger.claimed_files()}
    assert owners == {"feb.parquet": "shop", "jan.parquet": "shop", "march.parquet": "twin"}


def test_public_tables_of_before_keep_their_files_from_becoming_private(house: House, sources: Path) -> None:
    declare_as_before(house, "shop.orders", private("orders/feb.parquet"))
    declare_as_before(house, "twin.open", public("orders/jan.parquet"))
    house.books.administration.start()
    refused(house, "shop.jan", private("orders/jan.parquet"), "public in twin.open")


def rewritten(house: House, change: Any) -> None:
    """The declarations of the journal and of the catalog, as another version might have written them."""

    def work(tx: Transaction) -> None:
        tx.execute(sa.text("DROP TRIGGER entry_update_guard"))
        for row in tx.execute(sa.select(entry)).all():
            body = json.loads(row.body)
            if body.get("act") == "table.put":
                change(body["what"]["after"])
                tx.execute(entry.update().where(entry.c.number == row.number).values(body=canonical_json(body)))
        for row in tx.execute(sa.select(table)).all():
            declared = json.loads(row.declaration)
            change(declared)
            mine = (table.c.dataset == row.dataset) & (table.c.name == row.name)
            tx.execute(table.update().where(mine).values(declaration=json.dumps(declared)))

    house.books.store.write(work)


def test_a_declaration_of_before_that_no_longer_fits_is_carried_by_its_source(house: House, sources: Path) -> None:
    declare_as_before(house, "shop.orders", private("orders/jan.parquet"))
    declare_as_before(house, "twin.open", public("orders/feb.parquet"))
    rewritten(house, lambda declared: declared.update(forgotten_field=1))
    administration = house.books.administration
    administration.start()
    assert {file.path[-11:]: file.dataset for file in house.books.ledger.claimed_files()} == {"jan.parquet": "shop"}
    kept = administration._claiming._imports.public_files()
    assert [(file.path[-11:], file.dataset, file.table) for file in kept] == [("feb.parquet", "twin", "open")]


@pytest.mark.parametrize("source", [None, {}, {"kind": "tape", "path": "orders"}, {"kind": "csv", "path": 7}])
def test_a_declaration_of_before_that_can_not_be_read_stops_nothing_and_frees_no_list(
    house: House, sources: Path, source: Any
) -> None:
    declare_as_before(house, "shop.orders", private("orders"))
    rewritten(house, lambda declared: declared.update(source=source))
    house.books.administration.start()
    refused(house, "twin.orders", private("orders"), "'shop'")
