"""API keys: made once, shown once, stored as a hash.

A key reads `ht_<prefix>_<secret>`. The prefix finds the row and is public; the secret is 256 random
bits, so a plain SHA-256 is enough, and the comparison takes the same time wherever it differs.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.catalog.acts import Note, now_ms
from service.catalog.tables import key
from service.core.errors import Conflict, NotFound, NotSignedIn
from service.core.request import Principal, Role
from service.store.database import Store
from service.store.transaction import Transaction

PREFIX_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
PREFIX_LENGTH = 10
USED_STEP_MS = 60_000  # last-used is kept to the minute: a read must not cost a write each time
NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """What to make. `expires_ms` None: until revoked. `owner` None: a person of its own, named by the key's prefix."""

    name: str
    role: Role
    datasets: tuple[str, ...] = ()
    expires_ms: int | None = None
    owner: str | None = None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Keys:
    """The keys of one store: made, checked, listed, revoked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, wish: NewKey, note: Note) -> tuple[str, str]:
        """(prefix, full key). The full key exists nowhere else after this returns."""
        prefix = "".join(secrets.choice(PREFIX_ALPHABET) for _ in range(PREFIX_LENGTH))
        secret = secrets.token_urlsafe(32)
        owner = prefix if wish.owner is None else wish.owner

        def work(tx: Transaction) -> None:
            tx.execute(
                key.insert().values(
                    prefix=prefix,
                    secret_sha256=_hash(secret),
                    name=wish.name,
                    role=wish.role,
                    datasets=json.dumps(sorted(set(wish.datasets))),
                    created_ms=now_ms(),
                    expires_ms=wish.expires_ms,
                    owner=owner,
                )
            )
            change = {"name": wish.name, "role": wish.role, "datasets": sorted(set(wish.datasets)), "owner": owner}
            note(tx, "key.create", prefix, change)

        self._store.write(work)
        return prefix, f"ht_{prefix}_{secret}"

    def authenticate(self, text: str) -> Principal:
        """Who holds this key. One message for missing, unknown, expired and revoked alike."""
        parts = text.split("_", 2)
        prefix, secret = (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "ht" else ("", "")
        with self._store.read() as connection:
            row = connection.execute(sa.select(key).where(key.c.prefix == prefix[:16])).mappings().first()
        matches = hmac.compare_digest(_hash(secret), row["secret_sha256"] if row else NOBODY)
        now = now_ms()
        if not row or not matches or row["revoked_ms"] is not None or (row["expires_ms"] or now + 1) <= now:
            raise NotSignedIn("send a valid key as `Authorization: Bearer ht_…`")
        if row["used_ms"] is None or now - row["used_ms"] > USED_STEP_MS:
            self._store.write(lambda tx: tx.execute(key.update().where(key.c.prefix == prefix).values(used_ms=now)))
        return _principal(dict(row))

    def principal(self, prefix: str) -> Principal | None:
        """Who a key in use belongs to; None once it is revoked or expired."""
        with self._store.read() as connection:
            row = connection.execute(sa.select(key).where(key.c.prefix == prefix, _active(now_ms()))).mappings().first()
        return None if row is None else _principal(dict(row))

    def any_active(self) -> bool:
        now = now_ms()
        with self._store.read() as connection:
            found = connection.execute(sa.select(key.c.prefix).where(_active(now)).limit(1)).first()
        return found is not None

    def every(self) -> list[dict[str, Any]]:
        """All keys without their hashes, newest first."""
        columns = [column for column in key.c if column.name != "secret_sha256"]
        with self._store.read() as connection:
            rows = connection.execute(sa.select(*columns).order_by(key.c.created_ms.desc(), key.c.prefix)).mappings()
            return [{**row, "datasets": json.loads(row["datasets"])} for row in rows]

    def revoke(self, prefix: str, note: Note) -> None:
        """Take a key out of use, except the last admin key: nobody could undo that."""

        def work(tx: Transaction) -> None:
            now = now_ms()
            rows = tx.execute(sa.select(key).where(key.c.role == "admin").with_for_update()).mappings().all()
            row = tx.execute(sa.select(key).where(key.c.prefix == prefix)).mappings().first()
            if row is None:
                raise NotFound("there is no such key")
            if row["revoked_ms"] is not None:
                return
            active = [admin for admin in rows if _is_active(dict(admin), now)]
            if [admin["prefix"] for admin in active] == [prefix]:
                raise Conflict("this is the last admin key; create another before you revoke it")
            tx.execute(key.update().where(key.c.prefix == prefix).values(revoked_ms=now))
            note(tx, "key.revoke", prefix, {"name": row["name"], "role": row["role"]})

        self._store.write(work)


def _principal(row: dict[str, Any]) -> Principal:
    return Principal(row["prefix"], row["name"], row["role"], frozenset(json.loads(row["datasets"])), row["owner"])


def _active(now: int) -> sa.ColumnElement[bool]:
    return key.c.revoked_ms.is_(None) & (key.c.expires_ms.is_(None) | (key.c.expires_ms > now))


def _is_active(row: dict[str, Any], now: int) -> bool:
    return row["revoked_ms"] is None and (row["expires_ms"] is None or row["expires_ms"] > now)


def may_read(principal: Principal, dataset: str) -> bool:
    readable = readable_datasets(principal)
    return readable is None or dataset in readable


def readable_datasets(principal: Principal) -> frozenset[str] | None:
    """What a key was given; None: it reads all."""
    return None if principal.role == "admin" else principal.datasets
