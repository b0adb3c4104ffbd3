"""Which files may be imported: those inside a configured root, and nothing that leads out of one.

A source's path comes from an admin over HTTP. Invariant N2: every file that an import opens is a
regular file whose real path lies inside the real path of a root. Globs are expanded here, never by
the database, so each match is checked. URLs are paths like any other here, and no such file exists.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.core.errors import SourceRefused

MOST_FILES = 10_000
ENDINGS = {"parquet": (".parquet", ".parq", ".pq"), "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"), "duckdb": ()}


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from. `path` is relative to a root: a file, a folder, or a pattern with * ? [ ].
    `table` names the table inside a DuckDB file."""

    kind: Literal["parquet", "csv", "duckdb"]
    path: str
    table: str | None = None


def find_files(source: Source, roots: Sequence[Path]) -> tuple[Path, ...]:
    """The real paths of the source's files, sorted; SourceRefused when there are none that may be read."""
    path = source.path
    if not path or len(path) > 1024 or any(ord(sign) < 32 for sign in path):
        raise SourceRefused("a source path has 1 to 1024 printable characters", {"path": path[:100]})
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) or path.startswith(("/", "~", "\\")):
        raise SourceRefused("a source path is relative to a configured folder; URLs are not read", {"path": path})
    if ".." in path.split("/"):
        raise SourceRefused("a source path may not contain '..'", {"path": path})
    if source.kind == "duckdb" and (source.table is None or _is_pattern(path)):
        raise SourceRefused("a DuckDB source needs one file and a table name", {"path": path})
    for root in roots:
        found = _inside(source, root)
        if found:
            return found
    raise SourceRefused(
        f"no {source.kind} file that may be read is at this path",
        {"path": path, "remedy": "put the file into one of the folders of HALFTONE_SOURCES"},
    )


def plain_places(source: Source, roots: Sequence[Path]) -> tuple[Path, ...]:
    """The real paths that a plain path (no pattern) means, root by root, whether or not anything is there."""
    if _is_pattern(source.path) or ".." in source.path.split("/") or source.path.startswith("/"):
        return ()
    return tuple(Path(os.path.realpath(Path(root) / source.path)) for root in roots)


def _inside(source: Source, root: Path) -> tuple[Path, ...]:
    real_root = Path(os.path.realpath(root))
    if not real_root.is_dir():
        return ()
    if _is_pattern(source.path):
        candidates = [path for path in real_root.glob(source.path) if not path.is_dir()]
    else:
        candidates = _listed(real_root / source.path, source.kind)
    if len(candidates) > MOST_FILES:
        raise SourceRefused(f"a source may have at most {MOST_FILES} files", {"path": source.path})
    return tuple(sorted({_checked(path, real_root, source.path) for path in candidates}))


def _listed(path: Path, kind: str) -> list[Path]:
    if not path.is_dir():
        return [path] if os.path.lexists(path) else []
    endings = ENDINGS[kind]
    return [file for file in path.rglob("*") if file.name.endswith(endings) and not file.is_dir()] if endings else []


def _checked(path: Path, real_root: Path, asked: str) -> Path:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(real_root):
        raise SourceRefused("this path leads out of the folders that may be read", {"path": asked})
    if not real.is_file():
        raise SourceRefused("only regular files are read", {"path": asked})
    return real


def _is_pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[")
