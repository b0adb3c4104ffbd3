"""All that admins may do, in one place: the groups of acts together, and what a start sets right first."""

from service.admin.books import BookActs
from service.admin.budgets import BudgetActs
from service.admin.datasets import DatasetActs
from service.admin.tables import TableActs


class Administration(DatasetActs, TableActs, BudgetActs, BookActs):
    """The acts of admins, one method each: every one of them leaves its entry in the journal."""

    def start(self) -> None:
        """When a service begins: what a killed process left between files, catalog and ledger is set right."""
        self._reconciling.start()
        self._carrying.carry()
        self._carrying.claim_prepared()
        self._importer.clean()

    def close(self) -> None:
        self._queue.close()
