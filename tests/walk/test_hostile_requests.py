"""Whatever a body holds, the real walk answers or refuses in words; nothing ends in a 5xx, and it goes on serving."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.whole import Served, served

SQL = st.sampled_from(
    [
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
        "SELECT town, SUM(cost) AS n, AVG(cost), MEDIAN(cost) FROM visits GROUP BY town HAVING COUNT(*) > 3",
        "SELECT ward, 'a' * COUNT(*) AS n FROM visits GROUP BY ward",
        "SELECT CAST(ward AS INTEGER), COUNT(*) FROM visits GROUP BY ward",
        "SELECT SUM(cost) FILTER (WHERE ward = 'a') / COUNT(DISTINCT patient) AS n FROM visits",
        "SELECT COUNT(*) AS n FROM visits WHERE patient = 7 AND cost / 0 > 1",
        "SELECT MODE(ward) AS n, MIN(cost), MAX(cost), STDDEV(cost) FROM visits",
        "SELECT * FROM visits",
        "SELECT",
        "\x00\ud7ff☃",
    ]
)
AMOUNT = st.sampled_from(["0.01", 0.5, "1e-12", 1e-13, 0, -1, "NaN", "1e400", True, None, [], "1_0", " 1", 10**30])
BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "rows_per_unit": st.sampled_from([1, 3, 2**31, 0, -1, 2**40, "3", 1.5]),
        "groups_per_unit": st.sampled_from([1, 5, 100_000, 0]),
        "columns": st.sampled_from(
            [
                {"visits.cost": [0, 10]},
                {"visits.cost": None},
                {"visits.cost": [5, 1]},
                {"x.y": [0, 1]},
                {"visits.ward": None},
            ]
        ),
        "unit_sum": st.sampled_from(
            [{"visits.cost": 10}, {"visits.cost": None}, {"visits.cost": -1}, {"visits.cost": 0}]
        ),
        "clip": st.sampled_from(["l1", "l2", "l3"]),
        "slots": st.sampled_from(["pairs", "rows"]),
    },
)
BODY = st.fixed_dictionaries(
    {"dataset": st.sampled_from(["clinic", "clinic", "clinic", "nowhere", "../clinic", 3]), "sql": SQL},
    optional={
        "epsilon": AMOUNT,
        "rho": AMOUNT,
        "share": AMOUNT,
        "delta": st.sampled_from(["1e-9", "0.2", 0, 1, "1e-19"]),
        "accuracy": st.sampled_from([{"output": name, "half_width": width} for name in "nx" for width in (50, 0)]),
        "bounds": BOUNDS,
        "min_units": st.sampled_from([1, 20, 0, 10**9]),
        "weights": st.sampled_from([{"n": 2}, {"n": 0}, {"x": 1}]),
        "dialect": st.sampled_from(["duckdb", "postgres", "bigquery", "klingon"]),
        "fresh": st.sampled_from([True, False, "yes"]),
        "surprise": st.just(1),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with served(folder, epsilon="1000000") as opened:
        yield opened


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(body=BODY, path=st.sampled_from(["/v1/queries", "/v1/estimates"]))
def test_no_body_ends_in_a_server_error(house: Served, body: dict[str, Any], path: str) -> None:
    text = json.dumps(body)
    response = house.ask("POST", path, content=text.encode(), headers={"Content-Type": "application/json"})
    assert response.status_code < 500, (text, response.text)
    if response.status_code >= 400:
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert {"code", "title", "status", "detail", "budget_spent"} <= problem.keys()
        assert problem["budget_spent"] is (problem["code"] == "outer-refused")


def test_it_still_serves_afterwards(house: Served) -> None:
    good = {"dataset": "clinic", "sql": "SELECT COUNT(*) AS n FROM visits WHERE cost > 1", "epsilon": "1"}
    response = house.ask("POST", "/v1/queries", json=good)
    assert response.status_code == 201
    assert not house.books.ledger.balance("clinic").failures
