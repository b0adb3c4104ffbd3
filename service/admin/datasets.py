"""Acts on datasets: declared with their account, described by fitted defaults, deleted with their budget kept."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.admin.acts import Acts
from service.admin.grants import grant_of
from service.catalog.check import check_name
from service.catalog.declare import DatasetDeclaration
from service.catalog.declared_budget import DeclaredBudget, budget_of
from service.core.amounts import Terms, weakness
from service.core.errors import CatalogRefused, Conflict, DatasetUnknown
from service.ledger.book import By
from service.privacy.accounting.costs import open_terms
from service.store.transaction import Transaction


class DatasetActs(Acts):
    """What admins do to a dataset as a whole."""

    def put_dataset(self, name: str, declared: DatasetDeclaration, *, actor: str) -> bool:
        """Declare, and open the account, or adjust it where the declared amounts changed, in one commit.

        A grant that was made since stays when only other things are declared anew. A ceiling rises only where the
        declaration names one: it is the promise, and nobody should weaken it by raising an epsilon. True when new.
        """
        budget = budget_of(declared)
        if name not in self._catalog.datasets():
            check_name(name, "dataset")
        by = By(actor, "declared")

        def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            before = change["before"]
            if before is None or budget_of(DatasetDeclaration.model_validate(before)) != budget:
                self._fit_account(tx, name, declared, budget, by)
            if (before or {}).get("window") != declared.window:
                self._ledger.set_window(name, declared.window, by, tx)
            self._ledger.note(act, {"subject": subject, **change}, by, dataset=name, tx=tx)

        return self._catalog.put_dataset(name, declared, note)

    def _fit_account(
        self, tx: Transaction, name: str, declared: DatasetDeclaration, budget: DeclaredBudget, by: By
    ) -> None:
        """Open the account; an old one takes a grant within its ceiling, or a higher ceiling as a new budget."""
        try:
            old = self._ledger.balance(name)
        except DatasetUnknown:
            _check_meant(budget, declared)
            terms = open_terms(budget.epsilon_ceiling, budget.delta_ceiling, keys_declared=budget.keys_declared)
            self._ledger.open_account(name, terms, grant_of(terms, budget.epsilon, budget.delta), by, tx)
            return
        terms = old.terms if declared.ceiling is None else _raised(old.terms, budget)
        granted = grant_of(terms, budget.epsilon, budget.delta)
        if terms != old.terms:
            _check_meant(budget, declared)
            self._ledger.raise_ceiling(name, terms, granted, by, tx)
        elif (budget.epsilon, budget.delta) != (old.epsilon_granted, old.delta_granted):
            self._ledger.grant(name, granted, by, tx)

    def delete_dataset(self, name: str, *, actor: str, reason: str) -> None:
        """Stop serving it, unless a panel shows it or a table of it is being imported."""
        self._queue.refuse_while_importing_any(name)
        shown = [panel.name for panel in self._panels.of_dataset(name)]
        if shown:
            raise Conflict(f"panels show this dataset: {', '.join(shown[:5])}. Delete them first")
        self._catalog.delete_dataset(name, self._note(actor, name, reason))

    def defaults(self, name: str) -> list[dict[str, Any]]:
        return self._catalog.kept_bounds.compared(self._catalog.schema(name))

    def refit(self, name: str, *, actor: str, reason: str) -> list[dict[str, Any]]:
        """Accept the bounds that the profiles of today say: from now on a question without bounds is another one."""
        return self._catalog.kept_bounds.accept(self._catalog.schema(name), self._note(actor, name, reason))


def _check_meant(budget: DeclaredBudget, declared: DatasetDeclaration) -> None:
    """A promise that protects little is made by saying so. One that was made before stays, and is named weak."""
    weak = weakness(budget.epsilon_ceiling, budget.delta_ceiling)
    if weak and not declared.weak:
        raise CatalogRefused(
            f"the ceiling is a {weak}",
            {"field": "weak", "remedy": 'lower the ceiling, or declare "weak": true: it is then named so everywhere'},
        )


def _raised(old: Terms, budget: DeclaredBudget) -> Terms:
    """The terms with the promise's ceilings; orders and weights stay, so what was spent keeps its meaning."""
    split = budget.delta_ceiling // 2 if old.delta_selection else 0
    selection = old.delta_selection if budget.delta_ceiling == old.delta_ceiling else split
    return replace(
        old, epsilon_ceiling=budget.epsilon_ceiling, delta_ceiling=budget.delta_ceiling, delta_selection=selection
    )
