"""A planted person must not be found anywhere but in the data.

The canary has a name, an amount and a city that occur once. Whatever is asked, no response, header,
log line, metric, journal entry or stored answer may hold them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.process import Running, run, start

CANARIES = ("Xanadu", "Zaphodina", "73133.77", "7313377", "73133")
CANARY_UNIT = 987654321

QUERIES = (
    "SELECT COUNT(*) AS n FROM people",
    "SELECT city, COUNT(*) AS n FROM people GROUP BY city",
    "SELECT name, COUNT(*) AS n FROM people GROUP BY name",
    "SELECT city, SUM(amount) AS s, AVG(amount) AS a FROM people GROUP BY city",
    "SELECT MAX(amount) AS m FROM people",
    "SELECT MIN(amount) AS m FROM people WHERE amount > 1000",
    "SELECT MEDIAN(amount) AS m FROM people WHERE amount > 1000",
    "SELECT COUNT(DISTINCT city) AS n FROM people",
    "SELECT CAST(name AS BIGINT) AS x, COUNT(*) AS n FROM people GROUP BY 1",
    "SELECT COUNT(*) AS n FROM people WHERE 1 / (amount - 100.0) > 0",
    "SELECT SUM(amount) AS s FROM people WHERE length(city) = 6",
    "SELECT * FROM people",
    "SELECT name FROM people",
    "SELECT person, COUNT(*) FROM people GROUP BY person",
    "SELECT COUNT(*) FROM people GROUP BY (SELECT MAX(amount) FROM people)",
    "SELECT COUNT(*) FROM people HAVING COUNT(*) > (SELECT MAX(amount) FROM people)",
    "SELECT error(name) FROM people",
    "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY city LIMIT 1",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("canary")
    plant(folder / "data" / "sources")
    keys = {"admin": run(folder, "migrate") and run(folder, "key", "create", "--role", "admin")}
    opened = start(folder, "serve", keys=keys, HALFTONE_METRICS="true", HALFTONE_TIME_STEP_MS="0")
    register(opened)
    yield opened
    opened.stop()


def plant(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = 3000
    people = [
        {"person": i, "name": f"N{i % 7}", "city": ("Bern", "Graz")[i % 2], "amount": 10.0 + i % 90}
        for i in range(rows)
    ]
    people.append({"person": CANARY_UNIT, "name": "Zaphodina", "city": "Xanadu", "amount": 73133.77})
    pq.write_table(pa.Table.from_pylist(people), folder / "people.parquet")


def register(running: Running) -> None:
    dataset = {
        "unit": "person",
        "epsilon": "100",
        "delta": "1e-6",
        "weak": True,
        "defaults": {"epsilon": "1", "delta": "1e-8"},
    }
    assert running.ask("PUT", "/v1/datasets/town", "admin", json=dataset).status_code == 201
    table = {
        "source": {"kind": "parquet", "path": "people.parquet"},
        "private": True,
        "unit": {"column": "person"},
        "columns": {"amount": {"type": "DOUBLE", "bounds": [0, 100000]}},
    }
    begun = running.ask("PUT", "/v1/datasets/town/tables/people", "admin", json=table)
    assert begun.status_code == 202, begun.text
    for _ in range(600):
        state = running.ask("GET", begun.headers["location"], "admin").json()
        if state["state"] != "running":
            break
    assert state["state"] == "done", state
    key = {"name": "analyst of the town", "role": "analyst", "datasets": ["town"]}
    running.keys["analyst"] = running.ask("POST", "/v1/keys", "admin", json=key).json()["key"]


def seen_by_analyst(response: httpx.Response) -> str:
    return response.text + json.dumps(dict(response.headers))


def assert_clean(text: str, where: str) -> None:
    for canary in (*CANARIES, str(CANARY_UNIT)):
        assert canary not in text, f"{canary} in {where}"


def test_no_response_log_metric_or_entry_holds_the_canary(running: Running) -> None:
    answered = 0
    for sql in QUERIES:
        for extra in ({}, {"fresh": True}):
            question = {"dataset": "town", "sql": sql, "epsilon": "1", "delta": "1e-8", **extra}
            response = running.ask("POST", "/v1/queries", json=question)
            assert response.status_code < 500, f"{sql}: {response.text}"
            answered += response.status_code in (200, 201)
            assert_clean(seen_by_analyst(response), sql)
            assert_clean(seen_by_analyst(running.ask("POST", "/v1/estimates", json=question)), f"estimate of {sql}")
    assert answered >= 16, "the walk must have run for this to mean anything"
    for path in ("/v1/datasets/town", "/v1/datasets/town/budget?detail=orders", "/v1/queries", "/v1/datasets"):
        assert_clean(seen_by_analyst(running.ask("GET", path)), path)
    for path in ("/metrics", "/v1/datasets/town/ledger?limit=1000", "/v1/audit?limit=1000"):
        assert_clean(seen_by_analyst(running.ask("GET", path, "admin")), path)
    assert_clean(running.log, "the log")
    assert_clean(running.output, "the output")


def test_the_store_of_ledger_and_answers_does_not_hold_the_canary(running: Running) -> None:
    """The prepared copy is private and holds it; the store of declarations, charges and answers must not."""
    data = running.folder / "data"
    for file in [path for path in data.glob("ledger.sqlite*") if path.is_file()]:
        content = file.read_bytes()
        for canary in CANARIES[:2]:
            assert canary.encode() not in content, f"{canary} in {file.name}"
