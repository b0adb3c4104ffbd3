"""Default bounds as they were first used: kept, so that a question asked again is the same question.

A default is chosen from a profile (service/core/fitted.py). When it is first used for a charge it is stored under what
it was chosen for, and from then on it is what is stored that counts, whatever a new profile says, until an admin
accepts new ones. It all follows from public facts, so looking it up tells nothing.

It is stored in the commit of that charge: who is refused, for want of budget say, stores nothing. A dataset has at most
KEPT_MOST; beyond, questions of a new kind get the fixed defaults, which need no storing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.catalog.acts import Note, now_ms
from service.catalog.tables import fitted_bounds
from service.core.errors import Conflict
from service.core.fitted import Basis, FittedBounds, basis_from_text, basis_to_text, fit_bounds
from service.core.schema import Schema
from service.store.database import Store
from service.store.transaction import Transaction

KEPT_MOST = 1000  # of one dataset


MOVED = "the default bounds of this question have changed meanwhile; ask again"


class DefaultsMoved(Conflict):
    """Other defaults are stored by now than a question was priced with: nothing was charged, price it again."""


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

    def of(self, dataset: str, bases: Sequence[Basis]) -> dict[Basis, FittedBounds | None]:
        """Those that are stored; and None for the others, where there are as many as a dataset may have."""
        if not bases:
            return {}
        with self._store.read() as connection:
            return _standing(connection, dataset, bases)

    def every(self, dataset: str) -> list[Kept]:
        """All of a dataset, oldest first."""
        query = sa.select(fitted_bounds).where(fitted_bounds.c.dataset == dataset)
        with self._store.read() as connection:
            rows = connection.execute(query.order_by(fitted_bounds.c.kept_ms, fitted_bounds.c.digest)).all()
        return [_kept(row) for row in rows]

    def keeping(self, dataset: str, used: Mapping[Basis, FittedBounds | None]) -> Callable[[Transaction], None] | None:
        """What the charge that uses these writes beside it; None: nothing. None for a basis means the fixed defaults,
        of which nothing is stored. Raises DefaultsMoved, here or in the commit, when others are stored by now."""
        known = self.of(dataset, list(used))
        _refuse_others(used, known)
        if all(basis in known or bounds is None for basis, bounds in used.items()):
            return None
        return lambda tx: _keep(tx, dataset, used)

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


def _standing(connection: sa.Connection, dataset: str, bases: Sequence[Basis]) -> dict[Basis, FittedBounds | None]:
    found: dict[Basis, FittedBounds | None] = {
        each.basis: each.bounds for each in map(_kept, connection.execute(_among(dataset, bases)))
    }
    missing = [basis for basis in bases if basis not in found]
    counted = sa.select(sa.func.count()).select_from(fitted_bounds).where(fitted_bounds.c.dataset == dataset)
    if missing and connection.execute(counted).scalar_one() >= KEPT_MOST:
        found |= dict.fromkeys(missing)
    return found


def _keep(tx: Transaction, dataset: str, used: Mapping[Basis, FittedBounds | None]) -> None:
    """Store those that are not stored yet."""
    known = _standing(tx, dataset, list(used))
    _refuse_others(used, known)
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    for basis, bounds in used.items():
        if bounds is None or basis in known:
            continue
        values = _values(dataset, basis, bounds)
        insert = dialect.insert(fitted_bounds).values(**values).on_conflict_do_nothing()
        if tx.execute(insert.returning(fitted_bounds.c.digest)).first() is None:
            raise DefaultsMoved(MOVED)


def _refuse_others(used: Mapping[Basis, FittedBounds | None], known: Mapping[Basis, FittedBounds | None]) -> None:
    if any(known.get(basis, bounds) != bounds for basis, bounds in used.items()):
        raise DefaultsMoved(MOVED)


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
