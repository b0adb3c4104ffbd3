"""A real process: first run, the README's query, bad days, and a second run that keeps everything."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.examples import QUERIES
from service.client import Client, Refused
from tests.fixtures.process import Running, start

COUNT = {"dataset": "shop", "sql": "SELECT country, COUNT(*) AS n FROM customers GROUP BY country", "epsilon": "0.1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    opened = start(tmp_path_factory.mktemp("service"))
    yield opened
    opened.stop()


def test_the_first_run_prints_three_keys_and_a_command_that_works(running: Running) -> None:
    assert running.keys.keys() == {"admin", "analyst", "viewer"}
    command = running.output.split("Ask something:\n")[1].split("\n\n")[0]
    answer = json.loads(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)
    assert answer["status"] == "answered"
    assert [row[0] for row in answer["rows"]] == ["AT", "CH", "DE", "ES", "FR", "IT", "NL", "PL"]
    for row, low, high in zip(answer["rows"], answer["low_95"], answer["high_95"], strict=True):
        assert low[1] < row[1] < high[1]
    assert answer["cost"]["epsilon"] == "0.1"
    assert answer["receipt"]["ledger_entry"] > 0


def test_it_is_not_ready_before_it_knows_how_fast_the_machine_is(running: Running) -> None:
    """Until then promises come from a careful guess, and the first questions would wait for it."""
    assert (running.folder / "data" / "speed.json").exists()


@pytest.mark.parametrize("name", QUERIES)
def test_the_examples_of_the_api_page_work_when_pasted(running: Running, name: str) -> None:
    response = running.ask("POST", "/v1/queries", json=QUERIES[name]["value"])
    assert response.status_code in (200, 201), response.text
    assert response.json()["rows"]


def test_a_repeated_question_is_answered_from_store_for_nothing(running: Running) -> None:
    question = {
        **COUNT,
        "sql": "SELECT page, COUNT(*) AS n FROM visits WHERE seconds > 30 GROUP BY page",
        "delta": "1e-9",
    }
    assert running.ask("POST", "/v1/queries", json=question).status_code == 201
    spent = running.ask("GET", "/v1/datasets/shop/budget").json()["spent"]
    again = running.ask("POST", "/v1/queries", json=question)
    assert (again.status_code, again.json()["cost"]["epsilon"]) == (200, "0")
    question["sql"] += " HAVING COUNT(*) > 10 ORDER BY n DESC LIMIT 3"
    sorted_again = running.ask("POST", "/v1/queries", json=question)
    assert (sorted_again.status_code, sorted_again.json()["cost"]["epsilon"]) == (200, "0"), (
        "other outer SQL is free too"
    )
    assert running.ask("GET", "/v1/datasets/shop/budget").json()["spent"] == spent


def test_a_retry_with_the_same_key_gets_the_same_bytes_and_another_body_is_refused(running: Running) -> None:
    headers = {"Idempotency-Key": "try-1"}
    question = {**COUNT, "fresh": True, "epsilon": "0.01"}
    first = running.ask("POST", "/v1/queries", json=question, headers=headers)
    again = running.ask("POST", "/v1/queries", json=question, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["rows"] == first.json()["rows"]
    other = running.ask("POST", "/v1/queries", json={**question, "epsilon": "0.02"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-key-reused")


def test_an_estimate_costs_nothing_and_says_what_a_query_would(running: Running) -> None:
    before = running.ask("GET", "/v1/datasets/shop/budget").json()["spent"]
    question = {**COUNT, "epsilon": "0.07", "fresh": True}
    estimate = running.ask("POST", "/v1/estimates", json=question).json()
    assert running.ask("GET", "/v1/datasets/shop/budget").json()["spent"] == before
    assert estimate["cost"]["epsilon"] == "0.07"


def test_refused_sql_says_what_and_costs_nothing(running: Running) -> None:
    before = running.ask("GET", "/v1/datasets/shop/budget").json()["spent"]
    for sql, code in (
        ("SELEC 1", "syntax-refused"),
        ("SELECT * FROM customers", "construct-refused"),
        ("SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id", "construct-refused"),
        ("SELECT COUNT(*) FROM 'secrets.csv'", "construct-refused"),
        ("SELECT COUNT(*) FROM nowhere", "construct-refused"),
    ):
        response = running.ask("POST", "/v1/queries", json={**COUNT, "sql": sql})
        assert response.json()["code"] == code, response.text
        assert response.json()["budget_spent"] is False
    assert running.ask("GET", "/v1/datasets/shop/budget").json()["spent"] == before


def test_more_than_the_budget_is_refused_before_data_is_read(running: Running) -> None:
    response = running.ask("POST", "/v1/queries", json={**COUNT, "epsilon": "2.5"})
    assert response.json()["code"] == "loss-out-of-range"


def test_the_client_gives_records_with_intervals_and_says_why_not(running: Running) -> None:
    with Client(running.url, running.keys["analyst"]) as client:
        answer = client.query("shop", "SELECT COUNT(*) AS n FROM customers", epsilon="0.1")
        [record] = answer.records()
        assert record["n_low_95"] < record["n"] < record["n_high_95"]
        assert answer.to_arrow().column_names == ["n", "n_low_95", "n_high_95"]
        assert [found["name"] for found in client.datasets()] == ["shop"]
        with pytest.raises(Refused) as refused:
            client.query("shop", "SELECT * FROM customers", epsilon="0.1")
        what, _, instead = str(refused.value).partition("\nRemedy: ")
        assert what.endswith("(line 1, column 8)")
        assert instead == refused.value.problem["remedy"]
        panel = {"dataset": "shop", "sql": "SELECT COUNT(*) AS n FROM customers", "epsilon": "0.1", "budget": "0.1"}
        running.ask("PUT", "/v1/panels/client_wall", json=panel)
        assert client.panel("client_wall").records() == []
        running.ask("POST", "/v1/panels/client_wall/refresh")
        time.sleep(1.1)  # polls are remembered for a second
        assert client.panel("client_wall").records() == [record], "what was released already"
        assert refused.value.code == "construct-refused"
    with Client(running.url, running.keys["viewer"]) as viewer, pytest.raises(Refused, match="may not"):
        viewer.query("shop", "SELECT COUNT(*) AS n FROM customers", epsilon="0.1")


def test_an_analyst_sees_declarations_and_sizes_with_their_noise_and_nothing_else_measured(running: Running) -> None:
    text = running.ask("GET", "/v1/datasets/shop").text
    shown = json.loads(text)
    assert shown["tables"]["orders"]["columns"]["amount"] == {"type": "DECIMAL(10,2)", "bounds": [0, 300], "step": 0.01}
    assert shown["tables"]["countries"]["private"] is False
    assert "discrete Laplace noise" in shown["tables"]["orders"]["profile"]["noise"]
    for word in ("parquet", "path", '"rows":', "842.76", str(running.folder)):
        assert word not in text


def test_the_ledger_verifies_and_the_audit_names_the_acts(running: Running) -> None:
    assert running.ask("POST", "/v1/ledger/verify", "admin").json()["holds"] is True
    acts = {entry["body"].get("act") for entry in running.ask("GET", "/v1/audit", "admin").json()}
    assert {"dataset.put", "table.put", "key.create"} <= acts


def test_a_taken_port_is_said_before_anything_is_done(running: Running, tmp_path: Path) -> None:
    environment = {**os.environ, "HALFTONE_DATA_DIR": str(tmp_path / "untouched")}
    command = [sys.executable, "-m", "service", "demo", "--port", str(running.port)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert f"Port {running.port}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "untouched").exists()


def test_logs_hold_no_sql_and_no_key(running: Running) -> None:
    running.ask(
        "POST", "/v1/queries", json={**COUNT, "sql": "SELECT COUNT(*) FROM customers WHERE country = 'XCANARY'"}
    )
    running.ask("POST", "/v1/queries", json={**COUNT, "sql": "SELECT XCANARY FROM customers"})
    assert "XCANARY" not in running.log
    assert "SELECT" not in running.log
    assert not any(key in running.log for key in running.keys.values())
    assert all(json.loads(line)["event"] for line in running.log.splitlines())


def test_killed_in_mid_query_it_keeps_the_charge_and_answers_again(tmp_path: Path) -> None:
    """Between reserve and settle the process dies. The cost stays, the attempt is never run again."""
    first = start(tmp_path)
    assert first.ask("POST", "/v1/queries", json=COUNT).status_code == 201
    before = first.ask("GET", "/v1/datasets/shop/budget").json()["spent"]["epsilon"]
    for pid in first.engines():
        os.kill(pid, signal.SIGSTOP)
    headers = {"Idempotency-Key": "dies"}
    question = {**COUNT, "fresh": True, "epsilon": "0.25", "wait": 0}
    assert first.ask("POST", "/v1/queries", json=question, headers=headers).status_code == 202
    deadline = time.monotonic() + 20
    while first.ask("GET", "/v1/datasets/shop/budget").json()["spent"]["epsilon"] == before:
        assert time.monotonic() < deadline, "the charge never came"
        time.sleep(0.1)
    first.kill()

    second = start(tmp_path, keys=first.keys)
    try:
        assert "Keys, shown this once" not in second.output
        assert "Making the demo shop" not in second.output
        spent = second.ask("GET", "/v1/datasets/shop/budget").json()["spent"]["epsilon"]
        assert float(spent) == pytest.approx(float(before) + 0.25)
        again = second.ask("POST", "/v1/queries", json={**question, "wait": 30}, headers=headers)
        assert (again.status_code, again.json()["code"], again.json()["budget_spent"]) == (500, "answer-failed", True)
        assert second.ask("POST", "/v1/queries", json={**COUNT, "fresh": True}).status_code == 201
        assert second.ask("POST", "/v1/ledger/verify", "admin").json()["holds"] is True
    finally:
        second.stop()
