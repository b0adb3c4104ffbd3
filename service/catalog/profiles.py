"""Released profiles, by dataset and table: public from the moment of their settle, and kept when the table goes."""

import json
from dataclasses import asdict

import sqlalchemy as sa

from service.catalog.tables import profile, table
from service.core.sizes import PrivateSize, Profile, ReleasedProfile, size_to_text
from service.store.transaction import Transaction


def write_profile(tx: Transaction, dataset: str, name: str, released: ReleasedProfile) -> None:
    """Store a profile in place of an older one of the same table; meant for the commit that settles its charge."""
    mine = (profile.c.dataset == dataset) & (profile.c.table == name)
    values = {"query_id": released.profile.query_id, "released": json.dumps(asdict(released))}
    if tx.execute(profile.update().where(mine).values(**values)).rowcount == 0:
        tx.execute(profile.insert().values(dataset=dataset, table=name, **values))


def read_profiles(connection: sa.Connection, dataset: str) -> dict[str, ReleasedProfile]:
    """By table, also of tables that are not there any more."""
    chosen = sa.select(profile.c.table, profile.c.released).where(profile.c.dataset == dataset)
    return {row.table: _read(row.released) for row in connection.execute(chosen)}


def resize(tx: Transaction, dataset: str, name: str, size: PrivateSize) -> None:
    """The size of a table that serves already, after a new profile of it."""
    mine = (table.c.dataset == dataset) & (table.c.name == name)
    tx.execute(table.update().where(mine).values(size=size_to_text(size)))


def _read(text: str) -> ReleasedProfile:
    stored = json.loads(text)
    counts = stored.pop("profile")
    return ReleasedProfile(Profile(tuple(counts["counts"]), counts["deviation"], counts["query_id"]), **stored)
