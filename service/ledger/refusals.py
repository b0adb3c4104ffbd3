"""Why an account did not move, in words: which one, what is left of it, what the query costs."""

import sqlalchemy as sa

from service.core.amounts import Cost, show_atto, show_pico
from service.core.errors import BudgetExhausted, ServiceError
from service.ledger.accounts import read_balance, read_quota
from service.ledger.allowances import paused_refusal
from service.ledger.tables import UNLIMITED


def quota_refuses(tx: sa.Connection, dataset: str, principal: str, owner: str, share: int) -> ServiceError:
    """The analyst's ration does not cover it, unless queries are paused."""
    if paused := paused_refusal(tx, dataset, owner):
        return paused
    quota = read_quota(tx, dataset, principal)
    left = show_pico((UNLIMITED if quota.limit is None else quota.limit) - quota.spent)
    wanted = show_pico(share)
    return BudgetExhausted(
        f"your quota of {dataset!r} has {left} of the budget left, this query costs {wanted}",
        {
            "account": "quota",
            "dataset": dataset,
            "currency": "share",
            "remaining": left,
            "cost": wanted,
            "remedy": "ask for less, or ask an admin for a larger quota",
        },
    )


def dataset_refuses(tx: sa.Connection, dataset: str, cost: Cost) -> ServiceError:
    """Why the dataset's account did not move: paused, delta, or no order with room. Then the order with the most
    room is named: it is what `remaining` shows everywhere."""
    if paused := paused_refusal(tx, dataset, None):
        return paused
    balance = read_balance(tx, dataset)
    facts: dict[str, str | int] = {"account": "dataset", "dataset": dataset}
    delta_left = balance.delta_limit - balance.delta_spent
    if cost.delta > delta_left:
        left, wanted = show_atto(delta_left), show_atto(cost.delta)
        return BudgetExhausted(
            f"{dataset!r} has delta {left} left for undeclared groups, this query costs {wanted}",
            facts
            | {"currency": "delta", "remaining": left, "cost": wanted}
            | {"remedy": "group by declared keys (a column with a domain, or key IN (…)), or give a smaller delta"},
        )
    at = max(range(len(balance.left)), key=lambda order: (balance.left[order], order == balance.terms.reference))
    order = "infinity" if at == len(balance.terms.orders) else str(float(balance.terms.orders[at]))
    left, wanted = show_pico(balance.left[at]), show_pico(cost.orders[at])
    return BudgetExhausted(
        f"{dataset!r} has epsilon {left} left (counted at order {order}), this query costs {wanted}",
        facts
        | {"currency": "epsilon", "order": order, "remaining": left, "cost": wanted}
        | {"remedy": "ask for less: POST /v1/estimates says what fits; an admin can grant more, up to the ceiling"},
    )
