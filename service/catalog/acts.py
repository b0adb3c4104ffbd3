"""How the catalog tells the journal what an admin did.

Invariant D1: no admin act without its entry. The journal lives in the ledger, a sibling package; the
composition hands a function over, and it writes into the same transaction as the act.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from service.store.transaction import Transaction

# (transaction, act, subject, what changed). Who and why are bound by whoever made the function.
Note = Callable[[Transaction, str, str, Mapping[str, Any]], object]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
