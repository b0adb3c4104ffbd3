"""A process is killed at every step of an import or a deletion: after a start the dataset serves, on one version."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.app import Books, Walk, open_books, open_walk
from service.catalog.declare import TableDeclaration
from service.catalog.imports import Imports
from service.catalog.store import Catalog
from service.core.errors import ServiceError
from service.core.plan import Loss
from service.core.request import Ask
from service.core.sizes import PublicSize, size_of_profile
from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.settings import Settings
from tests.fixtures.ledgers import KINDS
from tests.fixtures.postgres import new_database
from tests.fixtures.whole import ANALYST, DECLARED, clinic

PICO = 10**12
NARROW = {**DECLARED, "columns": {**DECLARED["columns"], "cost": {"type": "BIGINT", "bounds": [0, 50]}}}  # type: ignore[dict-item]
WARDS = {"source": {"kind": "parquet", "path": "wards.parquet"}, "private": False}
SUM = Ask("clinic", "SELECT SUM(cost) AS s FROM visits", Loss("epsilon", PICO))
PROFILED = {**DECLARED, "profile": {"share": "0.01"}}
COUNT = Ask("clinic", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", Loss("epsilon", PICO))

_context = multiprocessing.get_context("spawn")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(act: Callable[..., Any]) -> Callable[..., Any]:
    def both(*given: Any, **named: Any) -> None:
        act(*given, **named)
        die()

    return both


# Where the process dies, and whether what it did is there after a start.
IMPORT_POINTS = {
    "before building": (DuckDBImporter, "_build", die, False),
    "built": (DuckDBImporter, "_publish", die, False),
    "files moved": (manifests, "save_manifest", die, False),
    "manifest renamed": (manifests, "save_manifest", then_die, True),
    "before the commit": (Catalog, "finish_import", die, True),
    "committed": (Catalog, "finish_import", then_die, True),
}
DELETE_POINTS = {
    "before the commit": (Catalog, "delete_table", die, False),
    "committed": (Catalog, "delete_table", then_die, True),
    "manifest renamed": (manifests, "save_manifest", then_die, True),
    "before the version": (Catalog, "set_data_version", die, True),
    "done": (Catalog, "set_data_version", then_die, True),
}


def settings(folder: Path, url: str) -> Settings:
    return Settings(data_dir=folder, ledger_url=url, time_step_ms=0, engine_workers=1)


def patched(point: tuple[Any, str, Any, bool]) -> None:
    owner, name, way, _ = point
    setattr(owner, name, way if way is die else way(getattr(owner, name)))


def put(books: Books, table: str, declared: dict[str, object]) -> None:
    books.administration.put_table("clinic", table, TableDeclaration.model_validate(declared), actor="test")
    books.administration.wait("clinic", table)


def import_narrow(books: Books) -> None:
    put(books, "visits", NARROW)


def import_profiled(books: Books) -> None:
    put(books, "visits", PROFILED)


def import_wards(books: Books) -> None:
    put(books, "wards", WARDS)


IMPORTS = {"import": import_narrow, "profiled import": import_profiled, "public import": import_wards}


def _child(folder: Path, url: str, act: str, at: str) -> None:
    books = open_books(settings(folder, url))
    if act in IMPORTS:
        patched(IMPORT_POINTS[at])
        IMPORTS[act](books)
    else:
        patched(DELETE_POINTS[at])
        books.administration.delete_table("clinic", "wards", actor="test", reason="a test")


def killed(folder: Path, url: str, act: str, at: str) -> None:
    process = _context.Process(target=_child, args=(folder, url, act, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"it ended by itself: {process.exitcode}"


@contextmanager
def started(folder: Path, url: str) -> Iterator[tuple[Books, Walk]]:
    """As service/app.py starts it."""
    chosen = settings(folder, url)
    books = open_books(chosen)
    books.administration.start()
    walk = open_walk(chosen, books)
    try:
        yield books, walk
    finally:
        walk.close()
        books.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A clinic with visits and a public table of wards, whose process has ended."""
    url = "" if request.param == "sqlite" else new_database()
    (tmp_path / "sources").mkdir()
    pq.write_table(pa.table({"ward": ["a", "b", "c"]}), tmp_path / "sources" / "wards.parquet")
    with clinic(tmp_path, store_url=url) as (books, _):
        books.administration.put_table("clinic", "wards", TableDeclaration.model_validate(WARDS), actor="test")
        books.administration.wait("clinic", "wards")
    return tmp_path, url


def answered(walk: Walk, ask: Ask) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(walk.answerer.submit(ask, ANALYST, None, ask.sql, 60).body or b"")
    return answer


@pytest.mark.parametrize("at", IMPORT_POINTS)
def test_a_dataset_serves_after_a_process_was_killed_in_its_import(place: tuple[Path, str], at: str) -> None:
    killed(*place, "import", at)
    there = IMPORT_POINTS[at][3]
    with started(*place) as (books, walk):
        answer = answered(walk, SUM)
        assert answer["receipt"]["bounds"]["columns"] == {"cost": ["0", "50" if there else "100"]}
        manifest = manifests.load_manifest(manifests.dataset_folder(place[0], "clinic"))
        assert manifest is not None
        schema = books.catalog.schema("clinic")
        assert schema.versions == {name: entry.version for name, entry in manifest.tables.items()}
        assert schema.data_version == manifest.data_version == (3 if there else 2)
        assert Imports(books.store).unfinished() == []
        import_id = [entry for entry in books.ledger.entries(limit=1000) if entry.kind == "note"][-1]
        state = books.catalog.find_import(json.loads(import_id.body)["what"]["import"])
        assert state["state"] == ("done" if there else "failed")
        assert there or "import the table again" in state["detail"]
        import_narrow(books)
        assert answered(walk, SUM)["data_version"] == schema.data_version + 1
        assert books.ledger.verify().holds


@pytest.mark.parametrize("at", ["manifest renamed", "before the commit", "committed"])
def test_sizes_are_there_after_a_process_was_killed_in_an_import(place: tuple[Path, str], at: str) -> None:
    more = pa.table({"ward": ["a", "a", "b", "dd"]})
    pq.write_table(more, place[0] / "sources" / "wards.parquet")
    killed(*place, "profiled import", at)
    killed(*place, "public import", at)
    with started(*place) as (books, _):
        sizes, [bought] = books.catalog.schema("clinic").sizes, books.catalog.profiles("clinic").values()
        assert sizes["visits"] == size_of_profile(bought.profile, bought.profile.kept)
        assert sizes["wards"] == PublicSize(4, {"ward": 2}, {"ward": 2})
        import_profiled(books), import_wards(books)
        assert books.catalog.schema("clinic").sizes == sizes, "what an import that was left alone says"


def test_a_manifest_of_before_has_no_sizes_and_none_are_made_up(place: tuple[Path, str]) -> None:
    killed(*place, "public import", "manifest renamed")
    path = manifests.dataset_folder(place[0], "clinic") / manifests.NAME
    raw = json.loads(path.read_text())
    for entry in raw["tables"].values():
        del entry["size"], entry["most"]
    path.write_text(json.dumps(raw))
    with started(*place) as (books, _):
        assert "wards" not in books.catalog.schema("clinic").sizes


@pytest.mark.parametrize("at", DELETE_POINTS)
def test_a_dataset_serves_after_a_process_was_killed_in_a_deletion(place: tuple[Path, str], at: str) -> None:
    killed(*place, "delete", at)
    gone = DELETE_POINTS[at][3]
    with started(*place) as (books, walk):
        assert answered(walk, COUNT)["status"] == "answered"
        manifest = manifests.load_manifest(manifests.dataset_folder(place[0], "clinic"))
        assert manifest is not None
        assert ("wards" in manifest.tables, "wards" in books.catalog.schema("clinic").tables) == (not gone, not gone)
        books.administration.put_table("clinic", "wards", TableDeclaration.model_validate(WARDS), actor="test")
        books.administration.wait("clinic", "wards")
        version = books.catalog.schema("clinic").versions["wards"]
        assert version > 2, "a number does not come back"
        assert "wards" in books.catalog.schema("clinic").tables


def test_without_a_start_it_would_not_serve(place: tuple[Path, str]) -> None:
    """The check above would mean little if nothing were broken."""
    killed(*place, "import", "manifest renamed")
    chosen = settings(*place)
    books = open_books(chosen)
    walk = open_walk(chosen, books)
    try:
        with pytest.raises(ServiceError) as refused:
            answered(walk, SUM)
        assert refused.value.status == 503
    finally:
        walk.close()
        books.close()


def _importing(folder: Path, url: str, told: Connection) -> None:
    """An import that is about to publish, until it is told to go on."""
    publish = DuckDBImporter._publish

    def wait(*given: Any) -> None:
        told.send("ready")
        told.recv()
        publish(*given)

    DuckDBImporter._publish = wait  # type: ignore[method-assign]
    books = open_books(settings(folder, url))
    import_narrow(books)
    told.send("done")
    books.close()


def test_an_import_of_a_living_process_is_left_alone_when_another_starts(place: tuple[Path, str]) -> None:
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_importing, args=(*place, theirs))
    process.start()
    assert ours.recv() == "ready"
    with started(*place) as (books, walk):
        running = Imports(books.store).unfinished()
        assert [each.table for each in running] == ["visits"]
        assert answered(walk, SUM)["receipt"]["bounds"]["columns"] == {"cost": ["0", "100"]}
        ours.send("go on")
        assert ours.recv() == "done"
        process.join()
        assert books.catalog.find_import(running[0].id)["state"] == "done"
        assert answered(walk, SUM)["receipt"]["bounds"]["columns"] == {"cost": ["0", "50"]}
