"""Folders that imports build in, and files of versions that nobody needs any more."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

BUILD_PREFIX = "_build-"


@contextlib.contextmanager
def build_folder(folder: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sweep(folder: Path, keep: set[str], *, builds: bool = True) -> None:
    for file in folder.glob("*/*.duckdb*"):
        if not file.parent.name.startswith(BUILD_PREFIX) and str(file.relative_to(folder)) not in keep:
            file.unlink(missing_ok=True)
    if builds:
        for left in folder.glob(BUILD_PREFIX + "*"):
            shutil.rmtree(left, ignore_errors=True)
