"""Whose turn it is at the processors: the process that answers, then planning, queries, outer SQL, imports."""

import os
from pathlib import Path

import pytest

from service.engine.duckdb import engine, scratch
from service.engine.duckdb.importing import import_child
from service.engine.duckdb.processes import cage
from service.engine.duckdb.processes.child import Child
from service.engine.duckdb.processes.pool import MODULE
from service.walk import planner_process

MEMORY = 256 * 2**20


def test_the_order_is_planning_queries_outer_sql_imports() -> None:
    order = [planner_process.NICENESS, engine.NICENESS, scratch.NICENESS, import_child.NICENESS]
    assert order == sorted(set(order))
    assert order[0] > 0, "all of them behind the process that answers"


@pytest.mark.parametrize("module", [MODULE, import_child.MODULE])
def test_a_child_steps_back_before_it_is_caged(module: str) -> None:
    child = Child(module, memory_bytes=MEMORY, threads=1, niceness=3)
    try:
        child.wait_ready()
        assert os.getpriority(os.PRIO_PROCESS, child.process.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 3
    finally:
        child.kill()


def test_each_engine_starts_its_children_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Noting(engine.Pool):
        def __init__(self, **options: int) -> None:
            given.append(options["niceness"])
            super().__init__(**options)

    for module in (engine, scratch):
        monkeypatch.setattr(module, "Pool", Noting)
    engine.DuckDBEngine(tmp_path).close()
    scratch.DuckDBScratch(tmp_path).close()
    assert given == [engine.NICENESS, scratch.NICENESS]


@pytest.mark.parametrize(("cores", "kept"), [({0, 1, 2}, None), ({4, 5, 6, 7}, {5, 6, 7})])
def test_where_there_are_enough_cores_one_is_left_to_the_process_that_answers(
    cores: set[int], kept: set[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: chosen.append(wanted))
    cage.step_back(2)
    assert chosen == ([] if kept is None else [kept])
