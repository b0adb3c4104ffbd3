"""Default bounds as they were first used: kept, so that a question asked again is the same question.

A default is chosen from a profile (service/core/fitted.py). When it is first used for a charge it is stored under what
it was chosen for, and from then on it is what is stored that counts, whatever a new profile says, until an admin
accepts new ones. It all follows from public facts, so looking it up tells nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.catalog.acts import Note, now_ms
from service.catalog.tables import fitted_bounds
from service.core.fitted import Basis, FittedBounds, basis_from_text, basis_to_text, fit_bounds
from service.core.schema import Schema
from service.store.database import Store
from service.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Kept:
    """One stored default: what for, which, since when."""

    basis: Basis
    bounds: FittedBounds
    kept_ms: int


class KeptBounds:
    """The stored defaults of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, dataset: str, bases: Sequence[Basis]) -> dict[Basis, FittedBounds]:
        """Those that are stored."""
        if not bases:
            return {}
        with self._store.read() as connection:
            rows = connection.execute(_among(dataset, bases)).all()
        return {found.basis: found.bounds for found in map(_kept, rows)}

    def every(self, dataset: str) -> list[Kept]:
        """All of a dataset, oldest first."""
        query = sa.select(fitted_bounds).where(fitted_bounds.c.dataset == dataset)
        with self._store.read() as connection:
            rows = connection.execute(query.order_by(fitted_bounds.c.kept_ms, fitted_bounds.c.digest)).all()
        return [_kept(row) for row in rows]

    def keep(self, dataset: str, used: Mapping[Basis, FittedBounds]) -> dict[Basis, FittedBounds]:
        """Store those that are not stored yet; what is stored now, which another process may have done first."""
        known = self.of(dataset, list(used))
        missing = {basis: bounds for basis, bounds in used.items() if basis not in known}
        if not missing:
            return known

        def work(tx: Transaction) -> None:
            dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
            for basis, bounds in missing.items():
                values = _values(dataset, basis, bounds)
                tx.execute(dialect.insert(fitted_bounds).values(**values).on_conflict_do_nothing())

        self._store.write(work)
        return self.of(dataset, list(used))

    def compared(self, schema: Schema) -> list[dict[str, Any]]:
        """All of a dataset, each beside what the profiles of today say."""
        return [
            show_change(each.basis, each.bounds, _today(each.basis, schema)) | {"kept_ms": each.kept_ms}
            for each in self.every(schema.dataset)
        ]

    def accept(self, schema: Schema, note: Note) -> list[dict[str, Any]]:
        """Put what the profiles of today say in the place of all that is stored; what they say nothing of is
        forgotten. Returns what changed, which is also noted."""

        def work(tx: Transaction) -> list[dict[str, Any]]:
            mine = fitted_bounds.c.dataset == schema.dataset
            changed = []
            for row in tx.execute(sa.select(fitted_bounds).where(mine).order_by(fitted_bounds.c.digest)).all():
                old = _kept(row)
                new = _today(old.basis, schema)
                if new == old.bounds:
                    continue
                tx.execute(fitted_bounds.delete().where(mine, fitted_bounds.c.digest == row.digest))
                if new is not None:
                    tx.execute(fitted_bounds.insert().values(**_values(schema.dataset, old.basis, new)))
                changed.append(show_change(old.basis, old.bounds, new))
            note(tx, "defaults.refit", schema.dataset, {"changed": changed})
            return changed

        return self._store.write(work)


def show_change(basis: Basis, before: FittedBounds, after: FittedBounds | None) -> dict[str, Any]:
    """One default: what it is for, as it is stored, and as it is or would be anew."""
    reach = basis.reach
    return {
        "table": reach.table,
        "times": reach.times,
        "joined": list(reach.others),
        "groups": basis.groups,
        "before": _shown(before),
        "after": None if after is None else _shown(after),
    }


def _today(basis: Basis, schema: Schema) -> FittedBounds | None:
    return fit_bounds(basis, schema.sizes, schema.defaults)


def _shown(bounds: FittedBounds) -> dict[str, int]:
    return {"rows_per_unit": bounds.rows_per_unit, "groups_per_unit": bounds.groups_per_unit}


def _among(dataset: str, bases: Sequence[Basis]) -> sa.Select[tuple[object, ...]]:
    digests = [basis.digest for basis in bases]
    return sa.select(fitted_bounds).where(fitted_bounds.c.dataset == dataset, fitted_bounds.c.digest.in_(digests))


def _values(dataset: str, basis: Basis, bounds: FittedBounds) -> dict[str, object]:
    return {
        "dataset": dataset,
        "digest": basis.digest,
        "basis": basis_to_text(basis),
        **_shown(bounds),
        "profiles": json.dumps(bounds.profiles),
        "kept_ms": now_ms(),
    }


def _kept(row: sa.Row[tuple[object, ...]]) -> Kept:
    found = row._mapping
    bounds = FittedBounds(found["rows_per_unit"], found["groups_per_unit"], tuple(json.loads(found["profiles"])))
    return Kept(basis_from_text(found["basis"]), bounds, found["kept_ms"])
