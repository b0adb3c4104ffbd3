"""Stored answers and stored releases: what makes a repeated question free.

Invariant R1: a row here exists only for values that were charged, released and settled; it is written
in the same transaction as the settle entry. Reading it again is post-processing.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.answers import tables
from service.answers.codec import pack, unpack
from service.core.boundary import Array
from service.store.database import Store

CACHE_ANSWERS = 4096


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One answer as it left, byte for byte."""

    query_id: str
    principal: str
    dataset: str
    data_version: int
    sql: str
    asked_at: str
    status: str
    body: bytes
    replay_of: str | None = None

    @property
    def etag(self) -> str:
        return etag(self.body)


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


def etag(body: bytes) -> str:
    """A hash of released bytes: tells nothing that the body doesn't."""
    return hashlib.sha256(body).hexdigest()[:32]


class Answers:
    """Released answers by query id, released cores by frame. Hot answers stay in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hot: OrderedDict[str, StoredAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, tx: sa.Connection, answer: StoredAnswer, releases: tuple[StoredRelease, ...] = ()) -> None:
        """Inside the caller's transaction, so that settle and result are durable together or not at all."""
        tx.execute(
            tables.answer.insert().values(
                query_id=answer.query_id,
                principal=answer.principal,
                dataset=answer.dataset,
                data_version=answer.data_version,
                sql_text=answer.sql,
                asked_at=answer.asked_at,
                status=answer.status,
                body=answer.body,
                etag=answer.etag,
                replay_of=answer.replay_of,
            )
        )
        for release in releases:
            tx.execute(
                tables.release.insert().values(
                    query_id=release.query_id,
                    core=release.core,
                    dataset=release.dataset,
                    data_version=release.data_version,
                    frame=release.frame,
                    content=pack(release.head, release.arrays),
                )
            )

    def save(self, answer: StoredAnswer) -> None:
        """Store an answer that needs no settling: a replay."""
        self._store.write(lambda tx: self.put(tx, answer))

    def get(self, query_id: str) -> StoredAnswer | None:
        with self._lock:
            hit = self._hot.get(query_id)
            if hit is not None:
                self._hot.move_to_end(query_id)
                return hit
        with self._store.read() as tx:
            row = tx.execute(sa.select(tables.answer).where(tables.answer.c.query_id == query_id)).one_or_none()
        if row is None:
            return None
        answer = _answer(row)
        with self._lock:
            self._hot[query_id] = answer
            if len(self._hot) > CACHE_ANSWERS:
                self._hot.popitem(last=False)
        return answer

    def releases(self, dataset: str, data_version: int, frame: str) -> list[StoredRelease]:
        """Every stored release of these rows and keys, newest first."""
        where = (
            (tables.release.c.dataset == dataset)
            & (tables.release.c.data_version == data_version)
            & (tables.release.c.frame == frame)
        )
        with self._store.read() as tx:
            rows = tx.execute(
                sa.select(tables.release).where(where).order_by(tables.release.c.id.desc()).limit(50)
            ).all()
        return [_release(row) for row in rows]

    def history(self, principal: str, *, dataset: str | None, text: str | None, limit: int = 100) -> list[StoredAnswer]:
        """A principal's own answers, newest first. `text` is searched literally, case-insensitively."""
        where = tables.answer.c.principal == principal
        if dataset is not None:
            where &= tables.answer.c.dataset == dataset
        if text is not None:
            where &= sa.func.lower(tables.answer.c.sql_text).contains(text.lower(), autoescape=True)
        query = sa.select(tables.answer).where(where).order_by(tables.answer.c.asked_at.desc()).limit(limit)
        with self._store.read() as tx:
            return [_answer(row) for row in tx.execute(query)]


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
    )
