"""Reserve before data is read, settle after: the two commits of every query.

Invariant J4: a charge is durable before the engine sees the query, and is never taken back. Between
the two commits the query has a *hold*, which counts as spent. A hold whose process died is settled as
failed and never run again: a second run would be a second draw.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from service.core.amounts import CLOSED, Cost
from service.core.errors import AnswerFailed, DatasetUnknown, IdempotencyKeyReused
from service.ledger.accounts import dataset_account, new_quota, quota_account
from service.ledger.allowances import (
    dataset_allowance,
    give_places,
    person_allowance,
    refusal,
    take_places,
)
from service.ledger.journal import Journal, canonical_json
from service.ledger.late import is_uncounted, late
from service.ledger.refusals import dataset_refuses, quota_refuses
from service.ledger.reserve_function import DATASET_REFUSES, KEY_TAKEN, NO_ROOM, QUOTA_REFUSES, RESERVE_AT_ONCE
from service.ledger.tables import ORDERS, UNLIMITED, account, head, hold
from service.ledger.windows import roll_window
from service.store.clock import utc_now
from service.store.rendered import RenderedStatement
from service.store.transaction import Transaction

Outcome = Literal["answered", "failed"]


@dataclass(frozen=True, slots=True)
class Hold:
    """A query about to run: who asks, what it costs, and what its receipt will say.

    `share` is the cost as a part of the dataset's budget (pico), charged to the analyst's quota.
    `receipt` holds released facts only (mechanisms, bounds, events): admins can export it.
    """

    query_id: str
    dataset: str
    principal: str  # the prefix of the analyst's key
    request_hash: str
    cost: Cost
    share: int
    key: str | None = None  # the Idempotency-Key
    receipt: Mapping[str, Any] | None = None
    owner: str | None = None  # the person whose key it is; None: nobody but the key itself

    @property
    def person(self) -> str:
        return self.principal if self.owner is None else self.owner


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of a request that was sent under an Idempotency-Key."""

    state: Literal["held", "answered", "failed"]
    query_id: str
    request_hash: str


class AttemptExists(Exception):
    """The same request under the same key was reserved first; not an error that a caller sees."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt.query_id)
        self.attempt = attempt


_BOUND = [sa.bindparam(f"cost_{i}", type_=sa.BigInteger) for i in range(ORDERS)]
_DELTA = sa.bindparam("cost_delta", type_=sa.BigInteger)
_CLOSED: sa.ColumnElement[int] = sa.literal_column(str(CLOSED), sa.BigInteger)

OPENING = RenderedStatement(
    sa.select(
        head.c.number,
        head.c.hash,
        utc_now().label("at"),
        *(account.c[name] for name in ("orders", "window_kind", "window_id")),
    )
    .select_from(head.join(account, account.c.id == sa.bindparam("account_id", type_=sa.Text)))
    .with_for_update(of=[head, account])
)

# Test and change in one statement. Written as `spent <= limit - cost`, which can not overflow: both
# limit and cost are at most 2**62. A sum that would pass CLOSED stays there.
CHARGE = RenderedStatement(
    account.update()
    .where(
        account.c.id == sa.bindparam("account_id", type_=sa.Text),
        account.c.delta_spent <= account.c.delta_limit - _DELTA,
        sa.or_(*(account.c[f"spent_{i}"] <= account.c[f"limit_{i}"] - _BOUND[i] for i in range(ORDERS))),
    )
    .values(
        delta_spent=account.c.delta_spent + _DELTA,
        **{
            f"spent_{i}": sa.case(
                (account.c[f"spent_{i}"] >= _CLOSED - _BOUND[i], _CLOSED), else_=account.c[f"spent_{i}"] + _BOUND[i]
            )
            for i in range(ORDERS)
        },
    )
)

INSERT_HOLD = RenderedStatement(
    sa.text(
        "INSERT INTO hold (query_id, dataset, principal, key, request_hash, owner, process, late, state) VALUES"
        " (:query_id, :dataset, :principal, :key, :request_hash, :owner, :process, 0, 'held') ON CONFLICT DO NOTHING"
    )
)

FINISH_HOLD = RenderedStatement(
    sa.text(
        "UPDATE hold SET state = :state WHERE query_id = :query_id AND state = 'held'"
        " RETURNING dataset, principal, owner"
    )
)


def reserve(tx: Transaction, asked: Hold, process: str) -> int:
    """Charge the dataset and the analyst's quota and take a place in both allowances, or nothing of it. The number
    of the entry. Everything that can refuse does so before the commit, so a refusal costs nothing.
    """
    _check(asked)
    if tx.dialect.name == "postgresql":
        number = _reserve_at_once(tx, asked, process)
        if number > 0:
            return number
    journal = _open(tx, asked)
    named = {"query_id": asked.query_id, "dataset": asked.dataset, "principal": asked.principal, "owner": asked.person}
    taken = INSERT_HOLD(tx, **named, key=asked.key, request_hash=asked.request_hash, process=process)
    if taken.rowcount != 1:
        raise _already_there(tx, asked)
    # Sorted: "dataset:" before "quota:", for everyone, so two charges can not wait for each other.
    if not _charge(tx, dataset_account(asked.dataset), asked.cost):
        raise dataset_refuses(tx, asked.dataset, asked.cost)
    if not _charge_quota(tx, asked):
        raise quota_refuses(tx, asked.dataset, asked.principal, asked.person, asked.share)
    if not take_places(tx, asked.dataset, asked.person):
        raise refusal(tx, asked.dataset, asked.person)
    return journal.append("reserve", _body(asked), who=asked.principal, dataset=asked.dataset, query_id=asked.query_id)


def _reserve_at_once(tx: Transaction, asked: Hold, process: str) -> int:
    """The same in one trip (service/ledger/reserve_function.py); 0 when it has to go step by step."""
    body = canonical_json(_body(asked))
    (outcome,) = RESERVE_AT_ONCE(
        tx,
        account_id=dataset_account(asked.dataset),
        quota_id=quota_account(asked.dataset, asked.principal),
        dataset_id=dataset_allowance(asked.dataset),
        person_id=person_allowance(asked.dataset, asked.person),
        order_count=len(asked.cost.orders),
        cost="{" + ",".join(str(cost) for cost in _padded(asked.cost)) + "}",
        cost_delta=asked.cost.delta,
        share=asked.share,
        hold_query=asked.query_id,
        hold_dataset=asked.dataset,
        hold_principal=asked.principal,
        hold_key=asked.key,
        hold_hash=asked.request_hash,
        hold_owner=asked.person,
        hold_process=process,
        entry_body=body,
        entry_middle=canonical_json([asked.dataset, asked.query_id, asked.principal, body])[1:-1],
    ).fetchone()
    if outcome == KEY_TAKEN:
        raise _already_there(tx, asked)
    if outcome == DATASET_REFUSES:
        raise dataset_refuses(tx, asked.dataset, asked.cost)
    if outcome == QUOTA_REFUSES:
        raise quota_refuses(tx, asked.dataset, asked.principal, asked.person, asked.share)
    if outcome == NO_ROOM:
        raise refusal(tx, asked.dataset, asked.person)
    return int(outcome)


def settle(
    tx: Transaction,
    query_id: str,
    outcome: Outcome,
    write: Callable[[Transaction], None] | None,
    why: str | None,
    *,
    was_late: bool = False,
) -> None:
    """Close a hold and store its result, in one commit. Nothing is given back, whatever the outcome.

    A failure counts against the allowances: "it failed" may be a fact about one person. `was_late`: so does that it
    was late, which could not be counted before.
    """
    if was_late and is_uncounted(tx, query_id):
        late(tx, query_id)
    journal = Journal.lock(tx)
    found = FINISH_HOLD(tx, state=outcome, query_id=query_id).fetchall()
    if not found:
        raise AnswerFailed("the query could not be completed", {"query": query_id})
    dataset, principal, owner = found[0]
    give_places(tx, dataset, owner, failed=outcome == "failed")
    body = {"outcome": outcome} | ({"why": why} if why else {})
    journal.append("settle", body, who=principal, dataset=dataset, query_id=query_id)
    if write is not None:
        write(tx)


def lookup(tx: sa.Connection, principal: str, key: str) -> Attempt | None:
    """The attempt under this principal's key. Keys of others are other keys."""
    chosen = sa.select(hold.c.state, hold.c.query_id, hold.c.request_hash)
    row = tx.execute(chosen.where(hold.c.principal == principal, hold.c.key == key)).one_or_none()
    return None if row is None else Attempt(*row)


def find(tx: sa.Connection, query_id: str) -> tuple[str, Attempt] | None:
    """Who asked, and what became of it."""
    chosen = sa.select(hold.c.principal, hold.c.state, hold.c.query_id, hold.c.request_hash)
    row = tx.execute(chosen.where(hold.c.query_id == query_id)).one_or_none()
    return None if row is None else (row.principal, Attempt(*row[1:]))


def unfinished(tx: sa.Connection) -> dict[str, list[str]]:
    """Processes and the queries that they hold."""
    found: dict[str, list[str]] = {}
    chosen = sa.select(hold.c.process, hold.c.query_id).where(hold.c.state == "held").order_by(hold.c.query_id)
    for process, query_id in tx.execute(chosen):
        found.setdefault(process, []).append(query_id)
    return found


def _check(asked: Hold) -> None:
    amounts = (*asked.cost.orders, asked.cost.delta, asked.share)
    assert all(type(amount) is int and 0 <= amount <= CLOSED for amount in amounts), "costs are integers on the grid"
    assert asked.cost.orders[-1] > 0, "a release that costs nothing at order infinity is no release"


def _open(tx: Transaction, asked: Hold) -> Journal:
    """Lock the head of the chain and the account, and open a new window if the old one is over."""
    row = OPENING(tx, account_id=dataset_account(asked.dataset)).fetchone()
    if row is None:
        raise DatasetUnknown(f"there is no budget for a dataset named {asked.dataset!r}", {"dataset": asked.dataset})
    number, last_hash, at, orders, window_kind, window_started = row
    assert orders == len(asked.cost.orders), "a cost in the orders of another account"
    journal = Journal(tx, number, last_hash, at)
    if window_kind is not None:
        roll_window(tx, journal, asked.dataset, window_kind, window_started)
    return journal


def _body(asked: Hold) -> dict[str, Any]:
    return {
        "orders": [str(cost) for cost in asked.cost.orders],
        "delta": str(asked.cost.delta),
        "share": str(asked.share),
        "key": asked.key,
        "request_hash": asked.request_hash,
        "receipt": asked.receipt,
        "owner": asked.person,
    }


def _padded(cost: Cost) -> tuple[int, ...]:
    return cost.orders + (0,) * (ORDERS - len(cost.orders))


def _charge(tx: Transaction, account_id: str, cost: Cost) -> bool:
    bound = {f"cost_{i}": amount for i, amount in enumerate(_padded(cost))}
    return bool(CHARGE(tx, account_id=account_id, cost_delta=cost.delta, **bound).rowcount == 1)


def _charge_quota(tx: Transaction, asked: Hold) -> bool:
    """An analyst's first query opens the quota, without a limit."""
    name, cost = quota_account(asked.dataset, asked.principal), Cost((asked.share,))
    if _charge(tx, name, cost):
        return True
    if tx.execute(sa.select(account.c.id).where(account.c.id == name)).one_or_none() is not None:
        return False
    tx.execute(account.insert().values(new_quota(asked.dataset, asked.principal, UNLIMITED)))
    return _charge(tx, name, cost)


def _already_there(tx: sa.Connection, asked: Hold) -> IdempotencyKeyReused | AttemptExists:
    attempt = lookup(tx, asked.principal, asked.key) if asked.key is not None else None
    assert attempt is not None, "two queries with one id"
    if attempt.request_hash != asked.request_hash:
        return IdempotencyKeyReused("this Idempotency-Key was used for another request; take a new one")
    return AttemptExists(attempt)
