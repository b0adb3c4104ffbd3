"""What an import of a table takes away: answers that are free today, and panels that show some."""

import json
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from service.released import tables
from service.store.database import Store


class Dependents:
    """Reads stored releases by the versions of the tables that they were made from (service/core/versions.py)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def answers(self, dataset: str, present: Mapping[str, int], rebuilt: Collection[str]) -> int:
        """How many paid queries have a release that serves at the `present` versions and reads one of the `rebuilt`
        tables. One of before tables had versions does not say what it reads: it counts if it may."""
        release = tables.release.c
        kinds = sa.select(release.versions).where(release.dataset == dataset, release.versions.is_not(None)).distinct()
        numbers = {present[name] for name in rebuilt if name in present}
        with self._store.read() as tx:
            lost = [text for (text,) in tx.execute(kinds) if _serves_from(json.loads(text), present, rebuilt)]
            older = release.versions.is_(None) & release.data_version.in_(sorted(numbers))
            where = (release.dataset == dataset) & (release.versions.in_(lost) | older)
            return int(tx.execute(sa.select(sa.func.count(release.query_id.distinct())).where(where)).scalar_one())

    def panels(self, dataset: str, rebuilt: Collection[str]) -> list[str]:
        """The panels of a dataset whose answer reads one of these tables, or may; by name."""
        shown = (
            sa.select(tables.panel.c.name, tables.answer.c.versions)
            .join(tables.answer, tables.answer.c.query_id == tables.panel.c.query_id)
            .where(tables.panel.c.dataset == dataset)
            .order_by(tables.panel.c.name)
        )
        with self._store.read() as tx:
            found = tx.execute(shown).all()
        return [name for name, text in found if text is None or not set(rebuilt).isdisjoint(json.loads(text))]


def _serves_from(made_from: Mapping[str, int], present: Mapping[str, int], rebuilt: Collection[str]) -> bool:
    serves = all(present.get(name) == number for name, number in made_from.items())
    return serves and not set(rebuilt).isdisjoint(made_from)
