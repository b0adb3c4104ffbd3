"""The speed of a machine: measured in a child on made-up rows, kept, and measured again when it no longer fits."""

import json
import os
import stat
import time
from pathlib import Path

import pytest

from service.engine.duckdb import speed as speeds
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.speed import NAME, STATEMENTS, Setting, kept_speed, measure, setting, speed_of
from service.engine.worst_case.loads import USUAL
from service.engine.worst_case.predict import Machine

HERE = setting(threads=1, workers=2)
# Those that have another taken off take longer than that one.
EVEN = dict.fromkeys(STATEMENTS, 0.01) | {"nothing": 0.001, "more": 0.02, "own": 0.02, "texts": 0.03, "self": 0.03}


def test_a_real_child_measures_every_operator_and_it_is_kept_for_this_user_alone(tmp_path: Path) -> None:
    found = measure(tmp_path, HERE)
    assert found is not None
    assert found.keys() == USUAL.keys()
    assert all(0 < value < 1e9 for value in found.values())
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [NAME], "nothing half-written is left"
    kept = kept_speed(tmp_path, HERE)
    assert kept is not None
    assert all(abs(kept[operator] - found[operator]) < 0.001 for operator in USUAL)


@pytest.mark.parametrize(
    "other",
    [
        {**HERE, "duckdb": "0.1"},
        {**HERE, "cores": int(HERE["cores"]) + 1},
        {**HERE, "threads": int(HERE["threads"]) + 1},
        {**HERE, "workers": int(HERE["workers"]) + 1},
        {**HERE, "format": int(HERE["format"]) + 1},
    ],
)
def test_another_setting_is_another_speed(tmp_path: Path, other: Setting) -> None:
    speeds._keep(tmp_path, HERE, USUAL)
    assert kept_speed(tmp_path, HERE) == USUAL
    assert kept_speed(tmp_path, other) is None


@pytest.mark.parametrize("broken", ["", "{", "[]", "{}", '{"setting": 1, "speed": 2}', "\0"])
def test_a_broken_file_is_no_speed(tmp_path: Path, broken: str) -> None:
    (tmp_path / NAME).write_text(broken)
    assert kept_speed(tmp_path, HERE) is None


@pytest.mark.parametrize("value", [0, -1, "fast", None, float("inf"), float("nan")])
def test_nor_is_one_with_a_number_that_can_not_be(tmp_path: Path, value: object) -> None:
    speeds._keep(tmp_path, HERE, USUAL)
    stored = json.loads((tmp_path / NAME).read_text())
    stored["speed"]["group"] = value
    (tmp_path / NAME).write_text(json.dumps(stored))
    assert kept_speed(tmp_path, HERE) is None


def test_a_slower_machine_is_slower_in_everything_also_in_what_is_not_measured() -> None:
    fast, slow = speed_of(EVEN, threads=1), speed_of({name: 3 * s for name, s in EVEN.items()}, threads=1)
    assert all(slow[operator] > fast[operator] for operator in USUAL)


def test_threads_share_the_work_up_to_a_number() -> None:
    assert speed_of(EVEN, threads=4)["group"] == pytest.approx(speed_of(EVEN, threads=1)["group"] / 4)
    assert speed_of(EVEN, threads=64) == speed_of(EVEN, threads=speeds.THREADS_COUNTED)


def test_a_clock_that_saw_nothing_does_not_make_anything_free() -> None:
    found = speed_of({**EVEN, "few": 0.0, "texts": 0.0}, threads=1)
    assert found["find"] >= speeds.FASTEST * USUAL["find"]
    assert found["copy"] >= speeds.FASTEST * USUAL["copy"]


def test_an_engine_takes_up_the_kept_speed_at_once(tmp_path: Path) -> None:
    measured = {**USUAL, "group": 1234.0}
    options = EngineOptions(workers=2, threads=1, measured=True)
    speeds._keep(tmp_path, HERE, measured)
    engine = DuckDBEngine(tmp_path, options)
    try:
        assert engine._machine == Machine(measured, 2, 1, os.cpu_count() or 1)
    finally:
        engine.close()


def test_an_engine_measures_beside_its_work_and_serves_with_the_defaults_until_then(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path, EngineOptions(workers=1, threads=1, measured=True))
    try:
        until = time.monotonic() + 60
        while not (tmp_path / NAME).exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert kept_speed(tmp_path, setting(threads=1, workers=1)) is not None
        while engine._machine.speed == USUAL and time.monotonic() < until:
            time.sleep(0.01)
        assert engine._machine.speed != USUAL
    finally:
        engine.close()


def test_nobody_measures_where_no_time_is_promised(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path, EngineOptions(workers=1, threads=1))
    try:
        assert engine._machine.speed == USUAL
    finally:
        engine.close()
    assert not (tmp_path / NAME).exists()
