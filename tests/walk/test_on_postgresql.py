"""The same walk with PostgreSQL as the store: charge, replay, retry, history."""

import json
from pathlib import Path

import pytest

from service.core.errors import DatasetUnknown, IdempotencyKeyReused
from service.core.plan import Loss
from service.core.request import Ask
from service.walk.history import HistoryPart
from tests.fixtures.postgres import new_database
from tests.fixtures.whole import ANALYST, OTHER, STRANGER, clinic

PICO = 10**12


def test_a_question_is_charged_replayed_and_found_again(tmp_path: Path) -> None:
    ask = Ask("clinic", "SELECT ward, SUM(cost) AS s FROM visits GROUP BY ward", Loss("rho", PICO // 100))
    finer = Ask(ask.dataset, ask.sql, Loss("rho", PICO // 25))
    with clinic(tmp_path, store_url=new_database()) as (books, walk):
        first = walk.answerer.submit(ask, ANALYST, "key", "hash", 60)
        assert walk.answerer.submit(ask, ANALYST, "key", "hash", 60).body == first.body
        spent = books.ledger.balance("clinic").spent
        free = walk.answerer.submit(ask, OTHER, "key", "hash", 60)
        assert walk.answerer.submit(ask, OTHER, "key", "hash", 60).body == free.body
        with pytest.raises(IdempotencyKeyReused):
            walk.answerer.submit(finer, OTHER, "key", "other", 60)
        assert json.loads(free.body or b"")["rows"] == json.loads(first.body or b"")["rows"]
        assert books.ledger.balance("clinic").spent == spent
        refined = json.loads(walk.answerer.submit(finer, OTHER, None, "", 60).body or b"")
        assert refined["cost"]["rho"] == "0.03"
        listed = walk.answerer.history(OTHER, HistoryPart("clinic", "sum(COST)"))
        assert [item["replay_of"] for item in listed] == [None, first.query_id]
        assert walk.answerer.history(OTHER, HistoryPart("clinic", before=listed[0]["id"]))[0] == listed[1]
        with pytest.raises(DatasetUnknown):
            walk.answerer.submit(ask, STRANGER, None, "", 60)
        assert books.ledger.verify().holds
