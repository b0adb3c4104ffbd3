"""The queue of imports: one after the other, on a thread of its own, each with its end written down."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from service.catalog.store import Catalog
from service.core.errors import Conflict, ServiceError
from service.core.schema import Table
from service.engine.import_base import Claimed, Importer, Sizing
from service.engine.reports import Progress
from service.engine.sources import Source
from service.ledger.book import Ledger
from service.upkeep.reconciling import Reconciling

log = logging.getLogger("halftone")


@dataclass(frozen=True, slots=True)
class Begun:
    """An import that was noted and claimed, on its way to the thread that carries it out."""

    import_id: str
    dataset: str
    table: Table
    source: Source
    only: Claimed
    share: int | None  # of the budget, for a profile; None: it has none, or none is to be bought


class ImportQueue:
    """What is being imported by this process, by dataset and table."""

    def __init__(
        self, catalog: Catalog, ledger: Ledger, importer: Importer, sizing: Sizing, reconciling: Reconciling
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._importer = importer
        self._sizing = sizing
        self._reconciling = reconciling
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="import")
        self._running: dict[tuple[str, str], Future[None]] = {}

    def start(self, begun: Begun) -> None:
        self._running[begun.dataset, begun.table.name] = self._pool.submit(self._import, begun)

    def wait(self, name: str, table: str) -> None:
        self._running[name, table].result()

    def refuse_while_importing(self, name: str, table: str) -> None:
        running = self._running.get((name, table))
        if running is not None and not running.done():
            raise Conflict("this table is being imported already")

    def refuse_while_importing_any(self, name: str) -> None:
        if any(not job.done() for (dataset, _), job in self._running.items() if dataset == name):
            raise Conflict("an import is running; wait until it is done")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _import(self, begun: Begun) -> None:
        name, import_id = begun.dataset, begun.import_id
        try:
            self._reconciling.reconcile(name)
            self._ledger.mark()
            above = self._catalog.schema(name).data_version
            sized = self._sizing.begin(name, begun.table, begun.share)
            prepared = self._importer.prepare(
                name,
                begun.table,
                begun.source,
                self._progress(import_id),
                sized.truncation,
                only=begun.only,
                above=above,
            )
            self._catalog.finish_import(
                import_id,
                begun.table,
                data_version=prepared.data_version,
                detail=" ".join([*prepared.warnings, *sized.told(prepared)]),
                sizes=lambda profiles: sized.sizes(prepared, profiles),
                versions=prepared.versions,
            )
        except ServiceError as refused:
            self._catalog.fail_import(import_id, refused.detail)
        except Exception as bug:
            log.error("import failed", extra={"dataset": name, "kind": type(bug).__name__})
            self._catalog.fail_import(
                import_id, "the file could not be imported; the operator's log has the kind of error"
            )

    def _progress(self, import_id: str) -> Callable[[Progress], None]:
        return lambda at: self._catalog.note_progress(import_id, 100 * at.step // max(1, at.steps))
