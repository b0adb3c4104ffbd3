"""Acts on budgets and on those who spend them: grants, quotas, pauses, events, keys."""

from service.admin.acts import Acts
from service.admin.grants import grant_of
from service.catalog.declared_budget import zero_or_delta
from service.catalog.keys import NewKey
from service.core.amounts import Terms, parse_epsilon
from service.core.errors import CatalogRefused, NotFound
from service.core.request import IMPORT
from service.ledger.book import Allowance, By


class BudgetActs(Acts):
    """What admins do about who may spend how much."""

    def grant(self, name: str, epsilon: object, delta: object, *, actor: str, reason: str) -> None:
        """Set how much of the ceiling may be used; what is left out stays as it is."""
        self._catalog.declaration(name)
        balance = self._ledger.balance(name)
        wanted = balance.epsilon_granted if epsilon is None else parse_epsilon(epsilon)
        wanted_delta = balance.delta_granted if delta is None else zero_or_delta(delta)
        self._ledger.grant(name, grant_of(balance.terms, wanted, wanted_delta), By(actor, reason))

    def set_quota(self, name: str, prefix: str, share: int | None, *, actor: str, reason: str) -> None:
        self._catalog.declaration(name)
        if prefix not in {key["prefix"] for key in self._keys.every()}:
            raise NotFound("there is no such key")
        self._ledger.set_quota(name, prefix, share, By(actor, reason))

    def pause(self, name: str, *, actor: str, reason: str, owner: str | None = None, prefix: str | None = None) -> None:
        """No more queries to the dataset, or by one person: whoever owns the key `prefix`, or `owner` by name."""
        self._catalog.declaration(name)
        self._ledger.pause(name, By(actor, reason), owner=self._person(name, owner, prefix))

    def resume(
        self, name: str, *, actor: str, reason: str, owner: str | None = None, prefix: str | None = None
    ) -> None:
        """Queries go on, of everybody or of one person, with a fresh allowance of failures."""
        self._catalog.declaration(name)
        self._ledger.resume(name, By(actor, reason), owner=self._person(name, owner, prefix))

    def terms(self, name: str) -> Terms:
        """The promise: what the account was opened with, or raised to."""
        return self._ledger.terms(name)

    def events(self, name: str) -> list[Allowance]:
        """What failed and what came late: the dataset's, then each person's."""
        self._catalog.declaration(name)
        return self._ledger.events(name)

    def _person(self, dataset: str, owner: str | None, prefix: str | None) -> str | None:
        """Whom an act is about; None: the whole dataset. Nobody is made up by a typing error."""
        if owner is not None and prefix is not None:
            raise CatalogRefused("give the owner or one of their keys, not both", {"field": "key"})
        keys = self._keys.every()
        if prefix is not None:
            found: list[str] = [key["owner"] for key in keys if key["prefix"] == prefix]
            if not found:
                raise NotFound("there is no such key")
            return found[0]
        known = {key["owner"] for key in keys} | {each.owner for each in self._ledger.events(dataset)}
        if owner not in known | {None, IMPORT}:
            raise NotFound("no key has this owner: see `halftone key list`")
        return owner

    def create_key(self, wish: NewKey, *, actor: str) -> tuple[str, str]:
        unknown = set(wish.datasets) - set(self._catalog.datasets())
        if unknown:
            raise CatalogRefused(f"there is no dataset {sorted(unknown)[0]}", {"field": "datasets"})
        return self._keys.create(wish, self._note(actor, None, ""))

    def revoke_key(self, prefix: str, *, actor: str) -> None:
        self._keys.revoke(prefix, self._note(actor, None, ""))
