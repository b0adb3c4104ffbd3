"""What commands share: how they stop, open the books, and print tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from service.app import Books, open_books
from service.settings import Settings, read_settings
from service.store.migrate import is_current


class Stop(Exception):
    """A command can not go on; the message says why and what to do."""


def checked_settings(**overrides: object) -> Settings:
    """Settings of a store that exists and is up to date."""
    settings = read_settings(**overrides)
    require_current(settings)
    return settings


def require_current(settings: Settings) -> None:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_current(settings.store_url):
        raise Stop("The store is not up to date. Run: halftone migrate")


@contextmanager
def books() -> Iterator[Books]:
    opened = open_books(checked_settings())
    try:
        yield opened
    finally:
        opened.close()


def whole_number(text: str) -> int:
    """A number of the command line, in plain digits; Python alone would read those of every script."""
    if not text.isascii() or "_" in text:
        raise ValueError
    return int(text)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns padded to their widest cell."""
    cells = [list(header), *[["" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
