"""What one import learns of its table's size: how many rows of a unit it keeps, what may be said of it, and to whom.

Everything returned as a size is public: declared, or released in a profile. The sentences may speak of exact sizes and
are for the admin who imports, like all that an import reports.
"""

from collections.abc import Mapping

from service.core.errors import AnswerFailed, BudgetExhausted, DatasetPaused, LossOutOfRange
from service.core.schema import Table, UnitVia
from service.core.size_words import profile_in_words
from service.core.sizes import PrivateSize, ReleasedProfile, Size, private_size
from service.engine.import_base import Counting, Truncation
from service.engine.reports import PreparedTable
from service.ledger.book import AttemptExists, NoRoomYet
from service.walk.profiling import Profiler, ProfileWish

GROWN = 2  # times as many rows as the size promises: worth a new profile
UNKNOWN = "Sizes are not known: questions wait until the deadline."
# A profile tells how many rows a unit should keep, and only an import cuts to that: a copy that was not cut has units
# of any size, whatever its profile says.
DECLARE_BOTH = "Declare expected_rows and max_rows_per_unit, or profile the table and import it again."
DECLARE_ROWS = "Declare expected_rows, or profile the table."
NOT_BOUGHT = "Nothing was charged; a later import tries again."
NO_ROOM = "as many queries run as may still fail before an admin has to look"
CHARGED_BEFORE = (
    "A profile of this table was charged before and did not complete. It is not drawn again by itself: profile the"
    " table to buy another."
)


class ProfiledSizing:
    """What administration asks of sizes (engine/import_base.py, Sizing), answered with profiles."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler

    def begin(self, dataset: str, table: Table, share: int | None) -> "ProfiledImport":
        """`share` is pico of the ceiling; None: no profile is bought, whatever is known already."""
        return ProfiledImport(self._profiler, dataset, table, share)

    def profile(self, dataset: str, table: str, share: int, *, actor: str) -> ReleasedProfile:
        return self._profiler.again(dataset, table, share, actor=actor)


class ProfiledImport:
    """One import of one table. `truncation` goes into it, `sizes` and `told` come out of it."""

    def __init__(self, profiler: Profiler, dataset: str, table: Table, share: int | None) -> None:
        self._profiler = profiler
        self._dataset = dataset
        self._table = table
        self._share = share
        self._schema = profiler.catalog.schema(dataset)
        self._known = profiler.catalog.profiles(dataset)
        self._bought: ReleasedProfile | None = None
        self._told: list[str] = []

    @property
    def truncation(self) -> Truncation:
        """Stored profiles and declarations decide for the table and for all that hang on it; a profile that is bought
        on the way decides for the table itself."""
        tables = {**self._schema.tables, self._table.name: self._table}
        most = {name: kept for name, each in tables.items() if (kept := self._most(each)) is not None}
        buys = self._table.private and self._share is not None and self._table.name not in self._known
        return Truncation(most, self._profiled if buys else None)

    def sizes(self, prepared: PreparedTable, profiles: Mapping[str, ReleasedProfile]) -> dict[str, Size | None]:
        """Tables that were built with this one were cut anew, and may keep more of a unit than they did before. One
        that was deleted may be among them, until its files are gone: it has no size any more."""
        tables = {**self._schema.tables, self._table.name: self._table}
        built = [tables[name] for name in (self._table.name, *prepared.followers) if name in tables]
        found: dict[str, Size | None] = {
            each.name: private_size(profiles.get(each.name), self._most(each), each.expected_rows)
            for each in built
            if each.private
        }
        return found if prepared.size is None else {**found, self._table.name: prepared.size}

    def told(self, prepared: PreparedTable) -> list[str]:
        """For the admin: what was bought, what is not known, what has outgrown its size, what to do."""
        if not self._table.private:
            return []
        said, most = [*self._told], self._most(self._table)
        size = private_size(self._profile(self._table), most, self._table.expected_rows)
        if self._bought is not None:
            said.append(self._bought_words(self._bought))
        elif size is None:
            said += [UNKNOWN, DECLARE_BOTH if most is None else DECLARE_ROWS]
        else:
            said += _grown_words("The table", prepared.rows, size)
        for name, rows in prepared.followers.items():
            hanging = self._schema.sizes.get(name)
            if isinstance(hanging, PrivateSize):
                said += _grown_words(f"{name}, which was built anew with it,", rows, hanging)
        return said + self._risen(size)

    def _profile(self, table: Table) -> ReleasedProfile | None:
        if not table.private:
            return None
        mine = self._bought if table.name == self._table.name else None
        return mine or self._known.get(table.name)

    def _most(self, table: Table) -> int | None:
        """What a unit keeps. An M that a profile gave is in sizes and nowhere else: as the table's own
        `max_rows_per_unit` it would become the clamp of totals per unit, and multiply their noise."""
        if table.max_rows_per_unit is not None:
            return table.max_rows_per_unit
        found = self._profile(table)
        return None if found is None else found.profile.kept

    def _profiled(self, count: Counting) -> int | None:
        """Buy the first profile, if it can be bought, and say how many rows a unit keeps."""
        assert self._share is not None
        wish = ProfileWish(self._dataset, self._table.name, self._share, first=True)
        try:
            self._bought = self._profiler.first(wish, count)
        except (BudgetExhausted, DatasetPaused, LossOutOfRange) as refused:
            self._told.append(f"No profile was bought: {refused.detail}. {NOT_BOUGHT}")
        except NoRoomYet:
            self._told.append(f"No profile was bought: {NO_ROOM}. {NOT_BOUGHT}")
        except AttemptExists:
            self._told.append(CHARGED_BEFORE)
        except AnswerFailed as failed:
            self._told.append(f"{failed.detail[:1].upper()}{failed.detail[1:]}. Profile the table to buy another.")
        return self._most(self._table)

    def _bought_words(self, released: ReleasedProfile) -> str:
        paid = f"epsilon {released.epsilon}" if released.rho is None else f"rho {released.rho}"
        most = self._most(self._table)
        words = profile_in_words(released.profile, unit=self._schema.unit, most=most)
        return f"Its profile cost {paid} and is shown to analysts: {words}. A unit keeps at most {most:,} rows."

    def _risen(self, size: PrivateSize | None) -> list[str]:
        """Tables that hang on this one were profiled when its units kept fewer rows."""
        before = self._schema.sizes.get(self._table.name)
        if not isinstance(before, PrivateSize) or (size is not None and size.most <= before.most):
            return []
        hanging = [
            each.name
            for each in self._schema.tables.values()
            if isinstance(each.unit, UnitVia) and each.unit.table == self._table.name and each.name in self._known
        ]
        if not hanging:
            return []
        return [f"A unit keeps more rows than before. Profile what hangs on this table again: {', '.join(hanging)}."]


def _grown_words(what: str, rows: int, size: PrivateSize) -> list[str]:
    if rows <= GROWN * size.rows:
        return []
    against = "its profile" if size.profile is not None else "its declaration"
    remedy = "profile it again" if size.profile is not None else "declare expected_rows anew, or profile it"
    return [f"{what} has {rows / size.rows:,.0f} times the rows that {against} allows for: {remedy}."]
