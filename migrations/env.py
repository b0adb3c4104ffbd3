"""Run by Alembic: brings a store to the newest revision, or compares it with the models."""

import importlib
from typing import Any, Literal

from alembic import context

from service.store.database import metadata
from service.store.migrate import TABLE_MODULES

for module in TABLE_MODULES:
    importlib.import_module(module)


def include(_object: Any, name: str | None, kind: str, _reflected: bool, _compare_to: Any) -> bool:
    """Everything but Alembic's own table."""
    return not (kind == "table" and name == "alembic_version")


def render(kind: str, element: Any, _context: Any) -> str | Literal[False]:
    """A constraint of one store only is written by hand, inside a test of the dialect."""
    return "" if kind == "check" and getattr(element, "_ddl_if", None) is not None else False


def run() -> None:
    """In one transaction, on the connection that `service.store.migrate` hands over."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_object=include,
        render_item=render,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
