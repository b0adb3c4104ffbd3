"""The same questions to two datasets that differ in one person: only the noisy numbers may differ.

Statuses, refusals, prices, columns, notes, receipts and which answers are replays must be the same to the
letter: none of it is covered by noise.
"""

import json
from pathlib import Path
from typing import Any

from service.app import Walk
from service.core.errors import ServiceError
from service.core.plan import Accuracy, Loss
from service.core.request import Ask, AskedBounds
from tests.fixtures.whole import ANALYST, clinic, visits

PICO = 10**12
NOISY = ("rows", "low_95", "high_95")

# Undeclared groups that one person decides about (a town of one) are left out: selection is noisy too.
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, AVG(cost) AS a, STDDEV(cost) AS d FROM visits GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, AVG(cost) AS a, STDDEV(cost) AS d FROM visits GROUP BY ward ORDER BY n",
    "SELECT MAX(cost) AS m, MIN(cost) AS l FROM visits",
    "SELECT MEDIAN(cost) AS m FROM visits WHERE ward = 'a'",
    "SELECT COUNT(DISTINCT town) AS t, COUNT(DISTINCT patient) AS p FROM visits",
    "SELECT SUM(cost) AS s FROM visits WHERE 1 / (patient - 899) > 0",
    "SELECT SUM(CAST(town AS BIGINT)) AS s FROM visits WHERE cost > 1",
    "SELECT patient, COUNT(*) FROM visits GROUP BY patient",
    "SELECT * FROM visits WHERE patient = 899",
    "SELECT COUNT(*) FROM visits WHERE patient IN (SELECT MAX(patient) FROM visits)",
    "SELECT COUNT(*) FROM visits GROUP BY (SELECT COUNT(*) FROM visits)",
    "SELECT COUNT(*) FROM nowhere",
    "SELECT AVG(cost) AS a FROM visits WHERE cost > 1000",
)


def told(walk: Walk, ask: Ask) -> list[Any]:
    """All that a caller learns of one question, without the numbers that carry noise and the ids."""
    learned: list[Any] = []
    for act in (
        lambda: walk.answerer.estimate(ask, ANALYST),
        lambda: json.loads(walk.answerer.submit(ask, ANALYST, None, "", 30).body or b""),
        lambda: json.loads(walk.answerer.submit(ask, ANALYST, None, "", 30).body or b""),
    ):
        try:
            learned.append(_bare(act()))
        except ServiceError as error:
            extra = {name: value for name, value in error.extra.items() if name != "query_id"}
            learned.append((error.code, error.detail, extra, error.budget_spent))
    return learned


def _bare(body: dict[str, Any]) -> dict[str, Any]:
    bare = {name: value for name, value in body.items() if name not in (*NOISY, "id")}
    bare["row_count"] = len(body.get("rows", []))
    if "cost" in bare:
        bare["cost"] = {**bare["cost"], "replay_of": bare["cost"]["replay_of"] is not None}
    if "replay_of" in bare:
        bare["replay_of"] = bare["replay_of"] is not None
    return bare


def test_nothing_but_noise_tells_whether_one_person_is_there(tmp_path: Path) -> None:
    everyone = visits()
    without = everyone.filter([patient != 899 for patient in everyone["patient"].to_pylist()])
    assert everyone.num_rows > without.num_rows
    asks = [Ask("clinic", sql, Loss("epsilon", PICO, 10**9)) for sql in QUESTIONS]
    asks += [
        Ask("clinic", QUESTIONS[1], Loss("rho", PICO // 10)),
        Ask("clinic", QUESTIONS[1], Loss("rho", PICO // 5)),
        Ask("clinic", QUESTIONS[0], Loss("accuracy", 0, accuracy=Accuracy("n", 50, 0.95))),  # type: ignore[arg-type]
        Ask("clinic", QUESTIONS[0], Loss("epsilon", PICO), bounds=AskedBounds(rows_per_unit=1)),
    ]
    learned = []
    for name, table in (("with", everyone), ("without", without)):
        with clinic(tmp_path / name, epsilon="100", table=table) as (_, walk):
            learned.append([told(walk, ask) for ask in asks])
    for ask, one, other in zip(asks, *learned, strict=True):
        assert one == other, ask.sql
