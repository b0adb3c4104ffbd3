"""That a query was not done when it was promised: an event, counted once and while its hold is open."""

import sqlalchemy as sa

from service.core.errors import AnswerFailed
from service.ledger.allowances import count_late
from service.ledger.journal import Journal
from service.ledger.tables import hold
from service.store.transaction import Transaction


def late(tx: Transaction, query_id: str) -> int:
    """A query was not done at its promised time: an event of the dataset and of the person, whatever comes of it."""
    journal = Journal.lock(tx)
    chosen = hold.update().where(hold.c.query_id == query_id, hold.c.state == "held")
    marked = chosen.values(late=hold.c.late + 1).returning(hold.c.dataset, hold.c.principal, hold.c.owner, hold.c.late)
    found = tx.execute(marked).one_or_none()
    if found is None:
        raise AnswerFailed("the query could not be completed", {"query": query_id})
    assert found.late == 1, "a query is late once"
    safety = count_late(tx, found.dataset, found.owner)
    journal.append("late", {"safety": str(safety)}, who=found.principal, dataset=found.dataset, query_id=query_id)
    return safety


def is_uncounted(tx: sa.Connection, query_id: str) -> bool:
    """Not where `late` was committed although it raised."""
    chosen = sa.select(hold.c.late).where(hold.c.query_id == query_id, hold.c.state == "held")
    return tx.execute(chosen).scalar() == 0
