"""Acts on the books: the journal read, verified, and gone on with after a restore."""

import json
from dataclasses import asdict
from typing import Any

from service.admin.acts import Acts
from service.ledger.book import By
from service.ledger.journal import Entry

QUERY_KINDS = ("reserve", "late", "settle")


class BookActs(Acts):
    """What admins do with the journal."""

    def entries(self, *, dataset: str | None, after: int, limit: int) -> list[dict[str, Any]]:
        return [_shown(entry) for entry in self._ledger.entries(dataset=dataset, after=after, limit=limit)]

    def acts(self, *, after: int, limit: int) -> list[dict[str, Any]]:
        """Entries that an admin caused, oldest first."""
        found: list[dict[str, Any]] = []
        while len(found) < limit:
            page = self._ledger.entries(after=after, limit=1000)
            found += [_shown(entry) for entry in page if entry.kind not in QUERY_KINDS]
            if len(page) < 1000:
                break
            after = page[-1].number
        return found[:limit]

    def verify(self, known_heads: tuple[str, ...] = ()) -> dict[str, Any]:
        """Chain and balances, re-derived; `known_heads` are hashes that were kept elsewhere and must still occur."""
        verdict, restored = self._ledger.verify(known_heads), self._ledger.restored()
        shown = {"holds": verdict.holds, **asdict(verdict)}
        return shown | {"restored": None if restored is None else restored.words}

    def accept_restore(self, *, actor: str, reason: str) -> list[str]:
        """Go on with a ledger that is older than it was; what it may have forgotten counts as spent."""
        return self._ledger.accept_restore(By(actor, reason))


def _shown(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "body": json.loads(entry.body)}
