"""Small questions to price and release, without SQL."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from sqlglot import exp

from service.core.aggregates import AGGREGATES
from service.core.amounts import ATTO, PICO, Terms
from service.core.boundary import Array, ExactTable, KeyTable, ReleasedTable
from service.core.plan import (
    Aggregate,
    Attribute,
    Bounds,
    Key,
    Loss,
    Measure,
    Outer,
    Output,
    Plan,
    Query,
)
from service.core.schema import BIGINT, DOUBLE, VARCHAR, SqlType
from service.privacy.accounting.costs import open_terms
from service.privacy.noise.laws import LAPLACE, Law
from service.privacy.noise.sampling import NoiseSource, SecureNoise
from service.privacy.pricing.allot import price_at
from service.privacy.pricing.priced import PricedPlan
from service.privacy.release import release_values

TERMS = open_terms(PICO, ATTO // 10**6, keys_declared=True)
PURE = open_terms(PICO, 0, keys_declared=True)


def measure(name: str = "m0", low: int = 0, high: int = 100, **changes: object) -> Measure:
    fields: dict[str, object] = {"type": BIGINT, "step": Fraction(1), "label": name, **changes}
    return Measure(name=name, low=low, high=high, **fields)  # type: ignore[arg-type]


def aggregate(function: str, argument: str | None, type_: SqlType | None = None, **changes: object) -> Aggregate:
    kind = type_ or (BIGINT if function in ("count", "count_units", "count_distinct", "sum") else DOUBLE)
    name = f"{function}_{argument or 'all'}{changes.get('p', '')}"
    return Aggregate(name, AGGREGATES[function], argument, kind, f"{function}({argument})", **changes)  # type: ignore[arg-type]


def plan(*aggregates: Aggregate, measures: tuple[Measure, ...] = (), **changes: object) -> Plan:
    fields: dict[str, object] = {"keys": (), "attributes": (), "bounds": Bounds(1, 1), **changes}
    return Plan(
        rows=exp.select("1"), row_bound=None, measures=measures, aggregates=aggregates, digest="d", **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def by_key(size: int) -> tuple[Key, ...]:
    return (Key("k0", VARCHAR, "k", domain=tuple(f"v{i}" for i in range(size))),)


def attribute(name: str = "d0", *domain: object) -> Attribute:
    return Attribute(name, VARCHAR, name, domain or None)  # type: ignore[arg-type]


def question(*cores: Plan) -> Query:
    outputs = tuple(
        Output(a.name, "value", a.type, direct=(core, a.name), uses=((core, a.name),))
        for core, each in enumerate(cores)
        for a in each.aggregates
    )
    return Query("shop", cores, Outer(exp.select("1"), outputs, row_wise=True))


def priced(core: Plan, law: Law = LAPLACE, amount: int = PICO, terms: Terms = TERMS) -> PricedPlan:
    return price_at(question(core), law, amount, Loss(law.paid_in, amount), terms).plans[0]


def released(
    at: PricedPlan, columns: Mapping[str, Array | list[int]], size: int = 1, noise: NoiseSource | None = None,
    replicas: frozenset[str] = frozenset(),
) -> ReleasedTable:  # fmt: skip
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    keys = KeyTable({"k0": np.array([f"v{i}" for i in range(size)], dtype=object)}, size)
    exacts = [(at.value_needs(), ExactTable(arrays))]
    return release_values(at, keys, exacts, noise or SecureNoise(), replicas=replicas)


class Silent(SecureNoise):
    """No noise at all: what remains is arithmetic. For tests only, and only reachable from them."""

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)
