"""Bring a store to the newest revision; say which one it has.

Works from an installed package and from a checkout: the revisions are a package (`migrations`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from service.store.database import open_engine

# Whoever defines tables on the shared metadata is listed here.
TABLE_MODULES = ("service.ledger.tables", "service.catalog.tables", "service.released.tables")


class StoreUnreachable(Exception):
    """The database does not let us in; the message is for the operator's eyes."""


_LOCK = 4_840_202_611_160_001  # two processes that start together must not migrate together


def upgrade(url: str, revision: str = "head") -> None:
    """Apply what is missing, all of it or nothing. Does nothing on a store that is up to date."""
    with _connected(url) as config:
        command.upgrade(config, revision)


def make_revision(url: str, message: str, number: str) -> None:
    """Write the next revision from the difference between models and an up-to-date store (for developers)."""
    with _connected(url) as config:
        command.revision(config, message=message, rev_id=number, autogenerate=True)


def revisions() -> list[str]:
    """All revisions, oldest first."""
    walked = ScriptDirectory.from_config(_config()).walk_revisions()
    return [script.revision for script in walked][::-1]


def current(url: str) -> str | None:
    """The store's revision; None for an empty one."""
    engine = open_engine(url)
    try:
        with _reached(engine) as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def is_current(url: str) -> bool:
    return current(url) == revisions()[-1]


@contextmanager
def _connected(url: str) -> Iterator[Config]:
    engine = open_engine(url)
    try:
        with _reached(engine).execution_options(writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            config = _config()
            config.attributes["connection"] = connection
            yield config
    finally:
        engine.dispose()


def _reached(engine: sa.Engine) -> sa.Connection:
    try:
        return engine.connect()
    except sa.exc.OperationalError as error:
        said = str(error.orig).strip().splitlines()[0]
        raise StoreUnreachable(f"The store of HALFTONE_LEDGER_URL can not be reached: {said}") from None


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(migrations.__path__)))).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return config
