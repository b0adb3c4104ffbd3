"""Stored answers and stored releases: what makes a repeated question free.

Invariant V1: a release here exists only for values that were charged, released and settled; it is
written in the same transaction as the settle entry. Reading it again is post-processing.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.core.boundary import Array
from service.core.versions import common_version, versions_to_text
from service.released import tables
from service.released.codec import pack, unpack
from service.store.database import Store
from service.store.transaction import Transaction

HOT_BYTES = 64 * 1024 * 1024
RELEASES_READ = 50
LISTED = ("query_id", "dataset", "sql_text", "asked_at", "status", "replay_of")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One answer as it left, byte for byte. `replay_of`: the query that paid, if this one did not."""

    query_id: str
    principal: str
    dataset: str
    data_version: int
    sql: str
    asked_at: str
    status: str
    body: bytes
    replay_of: str | None = None
    versions: str | None = None  # of the tables that it reads (service/core/versions.py)

    @property
    def etag(self) -> str:
        return etag(self.body)


@dataclass(frozen=True, slots=True)
class ListedAnswer:
    """One line of an analyst's history. `asked_at` is when the request came: not how long it took."""

    query_id: str
    dataset: str
    sql: str
    asked_at: str
    status: str
    replay_of: str | None


@dataclass(frozen=True, slots=True)
class FreeAttempt:
    """What was answered for nothing under an Idempotency-Key."""

    query_id: str
    request_hash: str


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """One released core: `head` says what it is (price, bounds, measures), `arrays` hold keys and primitives."""

    query_id: str
    core: int
    dataset: str
    data_version: int
    frame: str
    head: Mapping[str, Any]
    arrays: Mapping[str, Array]
    versions: str | None = None


@dataclass(frozen=True, slots=True)
class PackedResult:
    """An answer and its releases, packed: nothing is left to be done but to write them."""

    answer: StoredAnswer
    rows: tuple[Mapping[str, Any], ...] = ()


def packed(answer: StoredAnswer, releases: tuple[StoredRelease, ...] = ()) -> PackedResult:
    """Packing is work and may fail, so it happens before a transaction is opened."""
    rows = tuple(
        {
            "query_id": release.query_id,
            "core": release.core,
            "dataset": release.dataset,
            "data_version": release.data_version,
            "frame": release.frame,
            "content": pack(release.head, release.arrays),
            "versions": release.versions,
        }
        for release in releases
    )
    return PackedResult(answer, rows)


def etag(body: bytes) -> str:
    """A hash of released bytes: tells nothing that the body doesn't."""
    return hashlib.sha256(body).hexdigest()[:32]


_BY_ID = sa.select(tables.answer).where(tables.answer.c.query_id == sa.bindparam("wanted_id"))
# A release of before tables had versions was made on one version of the whole dataset. When they got theirs, every
# table took that of its dataset; so it serves where all tables that it reads still have that one number.
_ON_FRAME = (
    sa.select(tables.release)
    .where(
        tables.release.c.dataset == sa.bindparam("wanted_dataset"),
        tables.release.c.frame == sa.bindparam("wanted_frame"),
        sa.or_(
            tables.release.c.versions == sa.bindparam("wanted_versions"),
            sa.and_(
                tables.release.c.versions.is_(None), tables.release.c.data_version == sa.bindparam("wanted_common")
            ),
        ),
    )
    .order_by(tables.release.c.id.desc())
    .limit(RELEASES_READ)
)


class Answers:
    """Released answers by query id, released cores by frame. Hot answers stay in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hot: OrderedDict[str, StoredAnswer] = OrderedDict()
        self._hot_bytes = 0
        self._lock = threading.Lock()

    def put(self, tx: Transaction, result: PackedResult) -> None:
        """Inside the caller's transaction, so that settle and result are durable together or not at all."""
        answer = result.answer
        tx.execute(
            tables.answer.insert(),
            {
                "query_id": answer.query_id,
                "principal": answer.principal,
                "dataset": answer.dataset,
                "data_version": answer.data_version,
                "sql_text": answer.sql,
                "asked_at": answer.asked_at,
                "status": answer.status,
                "body": answer.body,
                "etag": answer.etag,
                "replay_of": answer.replay_of,
                "versions": answer.versions,
            },
        )
        if result.rows:
            tx.execute(tables.release.insert(), [dict(row) for row in result.rows])

    def save(self, answer: StoredAnswer, key: str | None, request_hash: str) -> FreeAttempt | None:
        """Store an answer that cost nothing, under its key if it has one; what was there first, if anything was."""

        def work(tx: Transaction) -> FreeAttempt | None:
            if key is not None and not _claim(tx, answer, key, request_hash):
                return _attempt(tx, answer.principal, key)
            self.put(tx, PackedResult(answer))
            return None

        return self._store.write(work)

    def attempt(self, principal: str, key: str) -> FreeAttempt | None:
        """The free answer under this principal's key. Keys of others are other keys."""
        with self._store.read() as tx:
            return _attempt(tx, principal, key)

    def get(self, query_id: str) -> StoredAnswer | None:
        with self._lock:
            hit = self._hot.get(query_id)
            if hit is not None:
                self._hot.move_to_end(query_id)
                return hit
        with self._store.read() as tx:
            row = tx.execute(_BY_ID, {"wanted_id": query_id}).one_or_none()
        if row is None:
            return None
        answer = _answer(row)
        self._warm(answer)
        return answer

    def releases(self, dataset: str, versions: Mapping[str, int], frame: str) -> list[StoredRelease]:
        """The stored releases of these rows and keys, newest first: those made on just these versions of the tables
        that they read (invariant V3)."""
        wanted = {
            "wanted_dataset": dataset,
            "wanted_frame": frame,
            "wanted_versions": versions_to_text(versions),
            "wanted_common": common_version(versions),
        }
        with self._store.read() as tx:
            rows = tx.execute(_ON_FRAME, wanted).all()
        return [_release(row) for row in rows]

    def stored(self, query_ids: Sequence[str]) -> set[str]:
        """Which of these have an answer, or a failure, in store."""
        chosen = sa.select(tables.answer.c.query_id).where(tables.answer.c.query_id.in_(query_ids))
        with self._store.read() as tx:
            return {str(row.query_id) for row in tx.execute(chosen)}

    def history(
        self, principal: str, *, dataset: str | None, text: str | None, limit: int = 100, before: str | None = None
    ) -> list[ListedAnswer]:
        """A principal's own questions, newest first; those that came before the query `before`. `text` is searched
        literally, case-insensitively."""
        where = tables.answer.c.principal == principal
        if dataset is not None:
            where &= tables.answer.c.dataset == dataset
        if text is not None:
            where &= sa.func.lower(tables.answer.c.sql_text).contains(text.lower(), autoescape=True)
        listed = sa.select(*(tables.answer.c[name] for name in LISTED))
        if before is not None:
            last = sa.select(tables.answer.c.asked_at, tables.answer.c.query_id).where(
                tables.answer.c.query_id == before, tables.answer.c.principal == principal
            )
            where &= sa.tuple_(tables.answer.c.asked_at, tables.answer.c.query_id) < last.scalar_subquery()
        newest = (tables.answer.c.asked_at.desc(), tables.answer.c.query_id.desc())
        with self._store.read() as tx:
            return [ListedAnswer(*row) for row in tx.execute(listed.where(where).order_by(*newest).limit(limit))]

    def _warm(self, answer: StoredAnswer) -> None:
        with self._lock:
            if answer.query_id in self._hot:
                return
            self._hot[answer.query_id] = answer
            self._hot_bytes += len(answer.body)
            while self._hot_bytes > HOT_BYTES:
                _, dropped = self._hot.popitem(last=False)
                self._hot_bytes -= len(dropped.body)


def _claim(tx: Transaction, answer: StoredAnswer, key: str, request_hash: str) -> bool:
    """Take the key for this answer; False when it is taken."""
    dialect = sqlite if tx.dialect.name == "sqlite" else postgresql
    claim = dialect.insert(tables.attempt).on_conflict_do_nothing().returning(tables.attempt.c.query_id)
    named = {"principal": answer.principal, "key": key, "request_hash": request_hash, "query_id": answer.query_id}
    return tx.execute(claim.values(**named)).first() is not None


def _attempt(tx: sa.Connection, principal: str, key: str) -> FreeAttempt | None:
    chosen = sa.select(tables.attempt.c.query_id, tables.attempt.c.request_hash)
    where = (tables.attempt.c.principal == principal) & (tables.attempt.c.key == key)
    row = tx.execute(chosen.where(where)).one_or_none()
    return None if row is None else FreeAttempt(*row)


def _answer(row: Any) -> StoredAnswer:
    return StoredAnswer(
        query_id=row.query_id,
        principal=row.principal,
        dataset=row.dataset,
        data_version=row.data_version,
        sql=row.sql_text,
        asked_at=row.asked_at,
        status=row.status,
        body=bytes(row.body),
        replay_of=row.replay_of,
        versions=row.versions,
    )


def _release(row: Any) -> StoredRelease:
    head, arrays = unpack(bytes(row.content))
    return StoredRelease(
        query_id=row.query_id,
        core=row.core,
        dataset=row.dataset,
        data_version=row.data_version,
        frame=row.frame,
        head=head,
        arrays=arrays,
        versions=row.versions,
    )
