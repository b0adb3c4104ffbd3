"""The walk of a profile: **reserve**, units counted and sealed, released, **settle** with the profile in it.

A profile is an answer like any other, asked by the principal `import`. It is bought at the first import of a private
table, once for ever (the ledger knows that attempt by its key, so that not even a crash buys it twice), and after that
only when an admin asks. What fails after the charge is settled as failed and not drawn again by itself.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from service.catalog.profiles import resize, write_profile
from service.catalog.store import Catalog
from service.core.amounts import CLOSED, show_pico
from service.core.errors import AnswerFailed
from service.core.ids import new_id
from service.core.request import IMPORT
from service.core.sizes import Profile, ReleasedProfile, size_of_profile
from service.engine.import_base import Counting, Importer
from service.ledger.book import By, Hold, Ledger
from service.privacy.noise.sampling import NoiseSource
from service.privacy.pricing.profile_price import PricedProfile, price_profile
from service.privacy.release import release_profile
from service.store.transaction import Transaction
from service.walk.room import Room

log = logging.getLogger("halftone.profile")

ROOM_WAIT_S = 30.0  # an import has read its file by now: it is worth to wait while others ask
FAILED = "the profile could not be completed; its charge stays"

Also = Callable[[Transaction, ReleasedProfile], None]


@dataclass(frozen=True, slots=True)
class ProfileTools:
    """What profiles are bought with; the composition root makes them."""

    catalog: Catalog
    ledger: Ledger
    importer: Importer
    noise: NoiseSource


@dataclass(frozen=True, slots=True)
class ProfileWish:
    """Which table, and pico of the ceiling that its profile may take. `first`: at its first import, and never twice."""

    dataset: str
    table: str
    share: int
    first: bool

    @property
    def key(self) -> str | None:
        """What the ledger knows the attempt by: a second charge under the same key is refused."""
        return f"first profile of {self.dataset}.{self.table}" if self.first else None

    @property
    def request_hash(self) -> str:
        return hashlib.sha256(f"profile {self.dataset}.{self.table}".encode()).hexdigest()


class Profiler:
    """Buys profiles: `first` for the first import of a table, `again` when an admin asks."""

    def __init__(self, tools: ProfileTools) -> None:
        self.catalog = tools.catalog
        self._ledger = tools.ledger
        self._importer = tools.importer
        self._noise = tools.noise

    def again(self, dataset: str, table: str, share: int, *, actor: str) -> ReleasedProfile:
        """A new profile of a table that serves, from its index of units.

        The copy that serves keeps what it keeps: the most rows of a unit follow the new profile at the next import.
        The safety factor starts again, in the same commit: what was late was promised from other sizes.
        """
        wish = ProfileWish(dataset, table, share, first=False)

        def bought(count: Counting) -> ReleasedProfile:
            most = self._kept(dataset, table)  # nobody imports meanwhile: it is what the counted copy keeps

            def also(tx: Transaction, released: ReleasedProfile) -> None:
                if most is not None:
                    resize(tx, dataset, table, size_of_profile(released.profile, most))
                self._ledger.reset_safety(dataset, By(actor, f"a new profile of {table}"), tx)

            return self.buy(wish, count, also)

        return self._importer.counted(dataset, table, bought)

    def first(self, wish: ProfileWish, count: Counting) -> ReleasedProfile:
        """As `buy`, when there is room in the allowance of failures. Raises NoRoomYet when there was none for long."""
        room = Room(self._ledger, wish.dataset, IMPORT, ROOM_WAIT_S)
        return room.when_there_is_some(lambda: self.buy(wish, count))

    def buy(self, wish: ProfileWish, count: Counting, also: Also | None = None) -> ReleasedProfile:
        """Charge, then count, then release, then settle; `also` is written in the settle commit.

        BudgetExhausted, DatasetPaused, LossOutOfRange, NoRoomYet and AttemptExists cost nothing; AnswerFailed keeps its
        charge.
        """
        priced = self._priced(wish)
        query_id = new_id("q")
        self._ledger.reserve(_hold(wish, priced, query_id))
        try:
            counts = release_profile(priced, count(), self._noise)
            released = _released(priced, counts, query_id)
            self._ledger.settle(query_id, "answered", lambda tx: _write(tx, wish, released, also))
        except Exception as cause:
            log.error("profile failed after its charge", extra={"query_id": query_id, "cause": type(cause).__name__})
            if self._ledger.give_up(query_id):
                return released  # settled although it was told otherwise
            raise AnswerFailed(FAILED, {"query_id": query_id}) from None
        return released

    def _kept(self, dataset: str, table: str) -> int | None:
        """The most rows of a unit in the copy that serves; None: any number."""
        prepared = self._importer.prepared(dataset)
        return None if prepared is None else prepared.tables[table].most

    def _priced(self, wish: ProfileWish) -> PricedProfile:
        """Laplace noise while order infinity is open: Gaussian noise would close it for all who ask with epsilon."""
        balance = self._ledger.balance(wish.dataset)
        return price_profile(wish.share, balance.terms, pure=balance.spent[-1] < CLOSED)


def _write(tx: Transaction, wish: ProfileWish, released: ReleasedProfile, also: Also | None) -> None:
    write_profile(tx, wish.dataset, wish.table, released)
    if also is not None:
        also(tx, released)


def _hold(wish: ProfileWish, priced: PricedProfile, query_id: str) -> Hold:
    return Hold(
        query_id=query_id,
        dataset=wish.dataset,
        principal=IMPORT,
        request_hash=wish.request_hash,
        cost=priced.cost,
        share=priced.share,
        key=wish.key,
        receipt={"profile": wish.table, "mechanisms": [priced.words]},
    )


def _released(priced: PricedProfile, counts: tuple[int, ...], query_id: str) -> ReleasedProfile:
    pure, amount = priced.mechanism.law.pure, show_pico(priced.amount)
    return ReleasedProfile(
        Profile(counts, priced.mechanism.deviation, query_id),
        noise=priced.words,
        epsilon=amount if pure else None,
        rho=None if pure else amount,
        share=show_pico(priced.share),
    )
