"""What every group of acts works with, and how an act leaves its entry in the journal.

Beside service/walk this is the only package that knows catalog, ledger, privacy and engine at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.admin.import_queue import ImportQueue
from service.catalog.acts import Note
from service.catalog.imports import Imports
from service.catalog.keys import Keys
from service.catalog.store import Catalog
from service.engine.import_base import Importer, Sizing
from service.ledger.book import By, Ledger
from service.released.dependents import Dependents
from service.released.panels import Panels
from service.store.transaction import Transaction
from service.upkeep.carrying import Carrying
from service.upkeep.claiming import Claiming
from service.upkeep.reconciling import Reconciling

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class AdministrationTools:
    """What administration works with; the composition root makes them."""

    catalog: Catalog
    keys: Keys
    ledger: Ledger
    panels: Panels
    importer: Importer
    sizing: Sizing
    imports: Imports
    dependents: Dependents


class Acts:
    """The tools in the hands of one administration; each group of acts adds its methods."""

    def __init__(self, tools: AdministrationTools) -> None:
        self._catalog = tools.catalog
        self._keys = tools.keys
        self._ledger = tools.ledger
        self._panels = tools.panels
        self._importer = tools.importer
        self._sizing = tools.sizing
        self._dependents = tools.dependents
        self._claiming = Claiming(tools.catalog, tools.imports, tools.ledger, tools.importer)
        self._carrying = Carrying(tools.catalog, tools.imports, tools.ledger, tools.importer)
        self._reconciling = Reconciling(tools.catalog, tools.imports, tools.importer, tools.ledger)
        self._queue = ImportQueue(tools.catalog, tools.ledger, tools.importer, tools.sizing, self._reconciling)

    def _note(self, actor: str, dataset: str | None, reason: str) -> Note:
        by = By(actor, reason)

        def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            self._ledger.note(act, {"subject": subject, **change}, by, dataset=dataset, tx=tx)

        return note
