"""What admins do, over all packages: the catalog's change, the ledger's entry and the import belong together.

Beside service/walk this is the only module that knows catalog, ledger, privacy and engine at once.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.catalog.acts import Note
from service.catalog.check import FileColumn, build_table, check_name, check_paths
from service.catalog.declare import DatasetDeclaration, SourceDeclaration, TableDeclaration
from service.catalog.keys import Keys, NewKey
from service.catalog.store import Catalog, Promise, promise_of, zero_or_delta
from service.core.amounts import Terms, parse_epsilon, show_atto, show_pico
from service.core.errors import CatalogRefused, Conflict, DatasetUnknown, LossOutOfRange, NotFound, ServiceError
from service.core.schema import Table, UnitVia
from service.engine.base import Importer
from service.engine.reports import Progress
from service.engine.sources import Source
from service.ledger.book import By, Grant, Ledger
from service.ledger.journal import Entry
from service.privacy.accounting.costs import limits, open_terms, selection_limit
from service.released.panels import Panels
from service.store.transaction import Transaction

log = logging.getLogger("halftone")

COMMAND_LINE = "command line"
QUERY_KINDS = ("reserve", "settle")


def grant_of(terms: Terms, epsilon: int, delta: int) -> Grant:
    """The limits that an (epsilon, delta) of the ceiling implies."""
    if epsilon > terms.epsilon_ceiling or delta > terms.delta_ceiling:
        raise LossOutOfRange(
            f"the ceiling is epsilon {show_pico(terms.epsilon_ceiling)} at delta {show_atto(terms.delta_ceiling)}",
            {"remedy": "grant less, or declare the dataset with a higher `ceiling`: that is a new and weaker promise"},
        )
    return Grant(epsilon, delta, limits(terms, epsilon, delta), selection_limit(terms, delta))


@dataclass(frozen=True, slots=True)
class AdministrationTools:
    """What administration works with; the composition root makes them."""

    catalog: Catalog
    keys: Keys
    ledger: Ledger
    panels: Panels
    importer: Importer


class Administration:
    """The acts of admins, one method each: every one of them leaves its entry in the journal."""

    def __init__(self, tools: AdministrationTools) -> None:
        self._catalog = tools.catalog
        self._keys = tools.keys
        self._ledger = tools.ledger
        self._panels = tools.panels
        self._importer = tools.importer
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="import")
        self._running: dict[str, Future[None]] = {}

    def start(self) -> None:
        """When a service begins: imports that a stopped process left behind did not finish."""
        self._catalog.fail_unfinished_imports()
        self._importer.clean()

    # --- Datasets ---

    def put_dataset(self, name: str, declared: DatasetDeclaration, *, actor: str) -> bool:
        """Declare, and open the account, or adjust it where the declared amounts changed, in one commit.

        A grant that was made since stays when only other things are declared anew. A ceiling rises only where the
        declaration names one: it is the promise, and nobody should weaken it by raising an epsilon. True when new.
        """
        promise = promise_of(declared)
        if name not in self._catalog.datasets():
            check_name(name, "dataset")
        by = By(actor, "declared")

        def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            before = change["before"]
            if before is None or promise_of(DatasetDeclaration.model_validate(before)) != promise:
                self._fit_account(tx, name, promise, by, keeps_ceiling=declared.ceiling is None)
            if (before or {}).get("window") != declared.window:
                self._ledger.set_window(name, declared.window, by, tx)
            self._ledger.note(act, {"subject": subject, **change}, by, dataset=name, tx=tx)

        return self._catalog.put_dataset(name, declared, note)

    def _fit_account(self, tx: Transaction, name: str, promise: Promise, by: By, *, keeps_ceiling: bool) -> None:
        """Open the account; an old one takes a grant within its ceiling, or a higher ceiling as a new promise."""
        try:
            old = self._ledger.balance(name)
        except DatasetUnknown:
            terms = open_terms(promise.epsilon_ceiling, promise.delta_ceiling, keys_declared=promise.keys_declared)
            self._ledger.open_account(name, terms, grant_of(terms, promise.epsilon, promise.delta), by, tx)
            return
        terms = old.terms if keeps_ceiling else _raised(old.terms, promise)
        granted = grant_of(terms, promise.epsilon, promise.delta)
        if terms != old.terms:
            self._ledger.raise_ceiling(name, terms, granted, by, tx)
        elif (promise.epsilon, promise.delta) != (old.epsilon_granted, old.delta_granted):
            self._ledger.grant(name, granted, by, tx)

    def delete_dataset(self, name: str, *, actor: str, reason: str) -> None:
        """Stop serving it, unless a panel shows it or a table of it is being imported."""
        if any(not job.done() for table, job in self._running.items() if table.startswith(f"{name}.")):
            raise Conflict("an import is running; wait until it is done")
        shown = [panel.name for panel in self._panels.all() if panel.dataset == name]
        if shown:
            raise Conflict(f"panels show this dataset: {', '.join(shown[:5])}. Delete them first")
        self._catalog.delete_dataset(name, self._note(actor, name, reason))

    def delete_table(self, name: str, table: str, *, actor: str, reason: str) -> None:
        served = self._catalog.schema(name).tables
        users = [t.name for t in served.values() if isinstance(t.unit, UnitVia) and t.unit.table == table]
        if users:
            raise Conflict(f"{', '.join(users)} reach their unit through {table}; delete them first")
        self._catalog.delete_table(name, table, self._note(actor, name, reason))
        if table in served:
            self._catalog.set_data_version(name, self._importer.remove(name, table))

    # --- Tables ---

    def inspect(self, name: str, table: str, source: SourceDeclaration, *, actor: str) -> dict[str, Any]:
        """Suggestions from the file, for the admin's eyes; that an admin looked is an entry. The dataset need not be
        declared yet: to declare it well one looks first."""
        found = self._importer.inspect(_source(source))
        known = name if name in self._catalog.datasets() else None
        self._ledger.note("table.inspect", {"subject": f"{name}.{table}"}, By(actor, ""), dataset=known)
        return {"table": table, **asdict(found)}

    def put_table(self, name: str, table: str, declared: TableDeclaration, *, actor: str) -> str:
        """Check the declaration against the file's columns, claim the source, and start the import.

        A table that is declared already keeps its name, whatever has been reserved since.
        """
        self._catalog.declaration(name)
        if table not in self._catalog.table_declarations(name):
            check_name(table, "table")
        running = self._running.get(f"{name}.{table}")
        if running is not None and not running.done():
            raise Conflict("this table is being imported already")
        source = _source(declared.source)
        found = self._importer.column_types(source)
        columns = tuple(FileColumn(column, kind) for column, kind in found.items())
        built = build_table(table, declared, columns)
        check_paths({**self._catalog.schema(name).tables, table: built})
        fingerprint = self._fingerprint(source) if built.private else None
        import_id = self._catalog.begin_import(name, table, declared, self._claiming(actor, name, fingerprint))
        self._running[f"{name}.{table}"] = self._pool.submit(self._import, import_id, name, built, source)
        return import_id

    def wait(self, name: str, table: str) -> None:
        """Until the import of this table has ended, one way or the other."""
        self._running[f"{name}.{table}"].result()

    def _claiming(self, actor: str, name: str, fingerprint: str | None) -> Note:
        """The journal's note, after the source was bound to this dataset's budget for ever."""
        note = self._note(actor, name, "")

        def claim(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            if fingerprint is not None:
                self._ledger.claim_source(name, fingerprint, By(actor, f"import of {subject}"), tx)
            note(tx, act, subject, change)

        return claim

    def _fingerprint(self, source: Source) -> str:
        """Names the people behind the rows: the real paths of the files, hashed."""
        paths = "\n".join(str(path) for path in self._importer.files(source))
        return hashlib.sha256(f"{paths}\n{source.table or ''}".encode()).hexdigest()

    def _import(self, import_id: str, name: str, built: Table, source: Source) -> None:
        try:
            prepared = self._importer.prepare(name, built, source, self._progress(import_id))
            self._catalog.finish_import(
                import_id, built, data_version=prepared.data_version, detail=" ".join(prepared.warnings)
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

    # --- Budgets ---

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

    def pause(self, name: str, *, actor: str, reason: str) -> None:
        self._catalog.declaration(name)
        self._ledger.pause(name, By(actor, reason))

    def resume(self, name: str, *, actor: str, reason: str) -> None:
        self._catalog.declaration(name)
        self._ledger.resume(name, By(actor, reason))

    # --- Books ---

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
        verdict = self._ledger.verify(known_heads)
        return {"holds": verdict.holds, **asdict(verdict)}

    # --- Keys ---

    def create_key(self, wish: NewKey, *, actor: str) -> tuple[str, str]:
        unknown = set(wish.datasets) - set(self._catalog.datasets())
        if unknown:
            raise CatalogRefused(f"there is no dataset {sorted(unknown)[0]}", {"field": "datasets"})
        return self._keys.create(wish, self._note(actor, None, ""))

    def revoke_key(self, prefix: str, *, actor: str) -> None:
        self._keys.revoke(prefix, self._note(actor, None, ""))

    def _note(self, actor: str, dataset: str | None, reason: str) -> Note:
        by = By(actor, reason)

        def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            self._ledger.note(act, {"subject": subject, **change}, by, dataset=dataset, tx=tx)

        return note

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _shown(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "body": json.loads(entry.body)}


def _source(declared: SourceDeclaration) -> Source:
    return Source(declared.kind, declared.path, declared.table)


def _raised(old: Terms, promise: Promise) -> Terms:
    """The terms with the promise's ceilings; orders and weights stay, so what was spent keeps its meaning."""
    split = promise.delta_ceiling // 2 if old.delta_selection else 0
    selection = old.delta_selection if promise.delta_ceiling == old.delta_ceiling else split
    return replace(
        old, epsilon_ceiling=promise.epsilon_ceiling, delta_ceiling=promise.delta_ceiling, delta_selection=selection
    )
