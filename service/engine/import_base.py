"""The seam of imports: what makes the prepared copy, whatever engine will run on it, and what is asked of sizes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from service.core.boundary import ExactTable
from service.core.schema import Table
from service.core.sizes import PublicSize, ReleasedProfile, Size
from service.engine.reports import Inspection, PreparedTable, Progress
from service.engine.sources import Source

Told = Callable[[Progress], None]
Counting = Callable[[], ExactTable]  # reads private rows, so a charge comes before it
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Truncation:
    """How many rows of one unit each table keeps: those of smallest rank, which that unit's rows alone decide (N5).

    `most` is by table; for one that is not in it the declaration says. `profiled`, where it is given, decides about
    the imported table itself, once its rows are ready and before they are cut: None keeps all. What it is handed
    counts the units by their rows, in the bins of a profile, sealed (column `units`).
    """

    most: Mapping[str, int] = field(default_factory=dict)
    profiled: Callable[[Counting], int | None] | None = None


# By table, the real files that may be opened for it, each with the stamp of when it was hashed for its claim.
Claimed = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A table of the prepared copy: as declared, its source, the version it was built in, from which real files (None:
    not written down), the size of a public table, and how many rows of a unit a private one kept (None: all)."""

    table: Table
    source: Source
    version: int
    files: tuple[str, ...] | None
    size: PublicSize | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is prepared of a dataset, and serves."""

    data_version: int
    tables: Mapping[str, PreparedFile]


class Importer(Protocol):
    """From an admin's files to the prepared copy (service/core/prepared.py), one version of a dataset after the other.

    What it hands back is made of exact values: for admins only.
    """

    def files(self, source: Source) -> tuple[Path, ...]:
        """The real paths behind a source; SourceRefused when there are none that may be read."""

    def places(self, source: Source) -> tuple[Path, ...]:
        """Where a source that names one file would really lie, also if nothing is there any more."""

    def inspect(self, source: Source) -> Inspection:
        """What a file seems to hold, for the admin who is about to declare it."""

    def column_types(self, source: Source) -> dict[str, str | None]:
        """By the file's own column names, the type that each takes when nobody declares one; None: none of ours."""

    def prepare(
        self,
        dataset: str,
        table: Table,
        source: Source,
        progress: Told | None = None,
        truncation: Truncation | None = None,
        *,
        only: Claimed | None = None,
        above: int = 0,
    ) -> PreparedTable:
        """Build the table and whatever hangs on it, then swap. Any failure leaves the old version serving.

        Of each table's files those in `only` are opened, and no others, and refused if they have changed since; None
        opens what is there. The new version's
        number is above `above`: numbers do not come back, also where the prepared copy is older than the catalog.
        """

    def counted(self, dataset: str, table: str, use: Callable[[Counting], T]) -> T:
        """What `use` makes of the units of a prepared private table, counted as for a profile when it asks for it.
        Raises NotFound for a table without data and Conflict while an import of the dataset runs."""

    def remove(
        self, dataset: str, table: str, *, above: int = 0, first: Callable[[], None] | None = None
    ) -> int | None:
        """A version without the table; its number, None where nothing of the table was prepared. The budget is not
        touched: it belongs to the people. `first` is done before, while nobody imports into the dataset; if it raises,
        nothing has changed. Raises Conflict while somebody imports."""

    def prepared_datasets(self) -> list[str]:
        """Datasets of which something is prepared, whatever the catalog says."""

    def prepared(self, dataset: str) -> Prepared | None:
        """What serves now; None where nothing was imported."""

    def still(self, dataset: str) -> AbstractContextManager[bool]:
        """Nobody imports into the dataset meanwhile; False when somebody does already."""

    def clean(self) -> None:
        """At start: leftovers of imports that were cut short, and files that no version names any more."""


class SizedImport(Protocol):
    """What one import learns of its table's size. `truncation` goes into it; `sizes`, which are public, come out of it,
    and what its admin is `told`."""

    @property
    def truncation(self) -> Truncation: ...

    def sizes(self, prepared: PreparedTable, profiles: Mapping[str, ReleasedProfile]) -> dict[str, Size | None]:
        """Of the table and of those that were built with it, by the profiles as they are stored when sizes are written
        down. None: not known any more; one that is not in it keeps what was known."""

    def told(self, prepared: PreparedTable) -> list[str]: ...


class Sizing(Protocol):
    """Sizes of private tables: bought at the first import and whenever an admin asks (service/walk/sized_import.py)."""

    def begin(self, dataset: str, table: Table, share: int | None) -> SizedImport: ...

    def profile(self, dataset: str, table: str, share: int, *, actor: str) -> ReleasedProfile:
        """A new profile of a table that serves, for the admin `actor`; promises of time start again from it."""
