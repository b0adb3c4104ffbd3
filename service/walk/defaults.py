"""Bounds that a request leaves out: as declared, or fitted to the profile, or as they were first used.

Reads the plan, the schema and what is stored of earlier choices: public facts, so an estimate and the query that
follows it get the same bounds, and asking again gets them again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from service.core.fitted import Basis, FittedBounds, fit_bounds, groups_of
from service.core.plan import Key, Plan, Query
from service.core.request import Ask
from service.core.schema import Schema
from service.core.sizes import PublicSize

# None: not stored, and the dataset has as many as it may have.
StoredDefaults = Mapping[Basis, FittedBounds | None]
NOTHING_KEPT: StoredDefaults = {}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Default bounds of one core: what for, which (None: the fixed ones, since nothing fits), and whether they were
    stored by an earlier charge. `basis` is what they are stored under: `exact`, rounded, or as it is, which is how
    they were stored before."""

    exact: Basis
    basis: Basis
    bounds: FittedBounds | None
    kept: bool

    @property
    def bases(self) -> tuple[Basis, Basis]:
        """Under what a default for this may be stored, the older way first."""
        return self.exact, self.exact.rounded

    def as_kept(self, known: StoredDefaults) -> "Chosen":
        """What is stored goes before what fits, and stays also where nothing fits any more."""
        for basis in self.bases:
            if (bounds := known.get(basis)) is not None:
                return Chosen(self.exact, basis, bounds, kept=True)
        basis = self.exact.rounded
        return Chosen(self.exact, basis, known.get(basis, self.bounds), kept=False)


def with_fitted_bounds(
    query: Query, ask: Ask, schema: Schema, kept: StoredDefaults = NOTHING_KEPT
) -> tuple[Query, tuple[Chosen | None, ...]]:
    """The query under the bounds that fit, where request and declaration leave them open; and what was chosen for each
    core that has something to choose for."""
    open_bounds = [
        name
        for name in ("rows_per_unit", "groups_per_unit")
        if getattr(ask.bounds, name) is None and getattr(schema.defaults, name) is None
    ]
    bases = [basis_of(plan, schema) if open_bounds else None for plan in query.cores]
    chosen = tuple(None if basis is None else _choose(basis, schema, kept) for basis in bases)
    cores = tuple(
        plan if found is None or found.bounds is None else _under(plan, found.bounds, open_bounds)
        for plan, found in zip(query.cores, chosen, strict=True)
    )
    return replace(query, cores=cores), chosen


def basis_of(plan: Plan, schema: Schema) -> Basis | None:
    """What the bounds of a plan are chosen for; None: its shape alone bounds them, or nothing does."""
    if plan.reach is None or plan.reach.table is None:
        return None
    return Basis(plan.reach, groups_of([_values(key, schema) for key in plan.keys]))


def _values(key: Key, schema: Schema) -> int | None:
    """How many values a key has, as far as that is declared; a public table has at most one per row."""
    if key.domain is not None:
        return max(1, len(key.domain))
    size = None if key.public is None else schema.sizes.get(key.public[0])
    return max(1, size.rows) if isinstance(size, PublicSize) else None


def _choose(exact: Basis, schema: Schema, known: StoredDefaults) -> Chosen:
    basis = exact.rounded
    return Chosen(exact, basis, fit_bounds(basis, schema.sizes, schema.defaults), kept=False).as_kept(known)


def _under(plan: Plan, bounds: FittedBounds, names: list[str]) -> Plan:
    return replace(plan, bounds=replace(plan.bounds, **{name: getattr(bounds, name) for name in names}))
