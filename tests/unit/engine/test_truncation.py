"""Imports that count units and cut their rows: what is counted, what is kept, and who else is cut with it."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from service.core.boundary import ExactTable
from service.core.errors import Conflict, NotFound
from service.core.sizes import BINS
from service.core.unsealing import unseal
from service.engine.duckdb import manifest as manifests
from service.engine.import_base import Counting, Truncation
from tests.unit.engine.place import LINES, ORDERS, TYPES, VISITS, Place, import_visits
from tests.unit.engine.shop import write_parquet

ROWS: list[tuple[object, ...]] = [(1, "a", day % 10) for day in range(50)] + [(2, "a", 1), (3, "b", 2), (3, "b", 3)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def bins(**units: int) -> list[int]:
    """Counts by the bin: b0 for one row, b6 for 33 to 64."""
    return [units.get(f"b{at}", 0) for at in range(BINS)]


def units_in(sealed: ExactTable) -> list[int]:
    return [int(count) for count in unseal(sealed)[0]["units"]]


def test_units_are_counted_before_they_are_cut_and_never_beyond_what_was_decided(place: Place) -> None:
    seen = []

    def decide(count: Counting) -> int:
        seen.append(units_in(count()))
        return 5

    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    prepared = place.importer.prepare("d", VISITS, source, None, Truncation(profiled=decide))
    assert seen == [bins(b0=1, b1=1, b6=1)]
    assert prepared.rows == 8
    assert place.read("visits", "SELECT rows FROM units ORDER BY rows") == [(1,), (2,), (5,)]
    assert place.read("visits", 'SELECT max("#rank"), count(*) FROM rows') == [(4, 8)]
    assert prepared.warnings[-1] == "84.9% of the rows are beyond the 5 that one unit keeps and were left out."
    assert place.manifest.tables["visits"].table == VISITS, "what a profile gave is not declared"
    assert place.importer.counted("d", "visits", lambda count: units_in(count())) == bins(b0=1, b1=1, b3=1)


def test_who_decides_need_not_count_and_may_keep_everything(place: Place) -> None:
    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    capped = replace(VISITS, max_rows_per_unit=4)
    assert place.importer.prepare("d", capped, source, None, Truncation(profiled=lambda _: None)).rows == 53
    assert place.importer.prepare("d", capped, source, None, Truncation(profiled=lambda _: 4)).rows == 7
    assert place.importer.prepare("d", capped, source).rows == 7
    assert place.importer.prepare("d", VISITS, source, None, Truncation({"visits": 3})).rows == 6


def test_rows_whose_parent_was_cut_go_with_it_and_followers_keep_their_own_cut(place: Place) -> None:
    orders = write_parquet(place.sources, "orders", [(i, i % 2) for i in range(20)], "order_id BIGINT, person BIGINT")
    lines = [(order, 10 * order + line) for order in range(20) for line in range(4)]
    source = write_parquet(place.sources, "lines", lines, "order_id BIGINT, line BIGINT")
    place.importer.prepare("d", ORDERS, orders, None, Truncation({"orders": 3}))
    assert place.importer.prepare("d", LINES, source).rows == 2 * 3 * 4
    again = place.importer.prepare("d", ORDERS, orders, None, Truncation({"lines": 5}, lambda _: 2))
    assert (again.rows, again.followers) == (2 * 2, {"lines": 2 * 5})


def test_a_manifest_of_before_kept_what_was_declared(place: Place) -> None:
    import_visits(place, ROWS, replace(VISITS, max_rows_per_unit=4))
    path = place.folder / manifests.NAME
    raw = json.loads(path.read_text())
    del raw["tables"]["visits"]["most"]
    path.write_text(json.dumps(raw))
    assert place.manifest.tables["visits"].most == 4


def test_a_decision_that_fails_leaves_the_old_version_serving(place: Place) -> None:
    def fail(_: Counting) -> int:
        raise Conflict("no")

    import_visits(place)
    before, files = place.manifest, place.files()
    with pytest.raises(Conflict):
        place.importer.prepare("d", VISITS, write_parquet(place.sources, "visits", ROWS, TYPES), None,
                               Truncation(profiled=fail))  # fmt: skip
    assert (place.manifest, place.files()) == (before, files)


def test_what_is_not_there_or_being_imported_is_not_counted(place: Place) -> None:
    with pytest.raises(NotFound):
        place.importer.counted("d", "visits", lambda count: count())
    import_visits(place)
    with pytest.raises(NotFound):
        place.importer.counted("d", "others", lambda count: count())
    inside, go_on = threading.Event(), threading.Event()

    def hold(_: Counting) -> int:
        inside.set()
        go_on.wait(60)
        return 1

    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    running = threading.Thread(target=place.importer.prepare, args=("d", VISITS, source, None, Truncation({}, hold)))
    running.start()
    try:
        assert inside.wait(60)
        with pytest.raises(Conflict):
            place.importer.counted("d", "visits", lambda count: count())
    finally:
        go_on.set()
        running.join()
    assert manifests.load_manifest(place.folder) is not None
    assert place.importer.counted("d", "visits", lambda count: units_in(count())) == bins(b0=3)
