"""Open the store; run reads and writes on it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy as sa

T = TypeVar("T")

metadata = sa.MetaData()


class Store:
    """Reads on any thread; writes one at a time, each a transaction that is durable when `write` returns."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)
        self._lock = threading.Lock()

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        with self._lock, self.engine.begin() as connection:
            return work(connection)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()
