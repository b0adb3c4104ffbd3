"""Declarations and keys in words: what routes answer and the command line prints."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from service.core.amounts import Terms, show_atto, show_fraction, show_pico, weakness
from service.core.schema import GROUPS_PER_UNIT, ROWS_PER_UNIT, Column, Schema, Table, UnitColumn, UnitVia, iso_of
from service.core.size_words import profile_in_words
from service.core.sizes import PrivateSize, ReleasedProfile
from service.ledger.book import Allowance


def show_schema(schema: Schema, profiles: Mapping[str, ReleasedProfile]) -> dict[str, Any]:
    """Declarations in words, and sizes as far as they were declared or released; counters and amounts exact. No path,
    and no count of anybody's rows but with its noise."""
    given = schema.defaults
    return {
        "name": schema.dataset,
        "unit": schema.unit,
        "data_version": schema.data_version,
        "tables": {
            name: show_table(table) | show_sizes(schema, table, profiles.get(name))
            for name, table in schema.tables.items()
        },
        "defaults": {
            "epsilon": None if given.epsilon is None else show_pico(given.epsilon),
            "delta": None if given.delta is None else show_atto(given.delta),
            "rows_per_unit": given.rows_per_unit or ROWS_PER_UNIT,
            "groups_per_unit": given.groups_per_unit or GROUPS_PER_UNIT,
            "fitted": [name for name in ("rows_per_unit", "groups_per_unit") if getattr(given, name) is None],
            "min_units": given.min_units,
        },
        "epsilon_per_query_max": None
        if schema.epsilon_per_query_max is None
        else show_pico(schema.epsilon_per_query_max),
    }


def show_promise(terms: Terms) -> dict[str, Any]:
    """The ceiling, and in words whether it is a weak one."""
    epsilon, delta = terms.epsilon_ceiling, terms.delta_ceiling
    ceiling = {"epsilon": show_pico(epsilon), "delta": show_atto(delta)}
    return {"ceiling": ceiling, "weak": weakness(epsilon, delta)}


def show_table(table: Table) -> dict[str, Any]:
    unit: dict[str, Any] | None = None
    match table.unit:
        case UnitColumn(column):
            unit = {"column": column}
        case UnitVia(column, target, key):
            unit = {"via": {"column": column, "references": f"{target}.{key}"}}
    return {
        "private": table.private,
        "unit": unit,
        "columns": {name: show_column(column) for name, column in table.columns.items()},
    }


def show_sizes(schema: Schema, table: Table, released: ReleasedProfile | None) -> dict[str, Any]:
    """A table that was public once, or private, shows what fits what it is now."""
    if not table.private:
        return {"size": None, "profile": None}
    size = schema.sizes.get(table.name)
    shown, most = None, None
    if isinstance(size, PrivateSize):
        most = size.most
        shown = {"rows_at_most": size.rows, "units_at_most": size.units, "rows_per_unit_at_most": most}
    return {"size": shown, "profile": None if released is None else show_profile(released, schema.unit, most)}


def show_profile(released: ReleasedProfile, unit: str, most: int | None) -> dict[str, Any]:
    """`most` is what a unit keeps now; the words speak of the rows that are left then."""
    profile = released.profile
    last = len(profile.counts) - 1
    return {
        "words": profile_in_words(profile, unit=unit, most=most),
        "bins": [
            {"fewest_rows": 2**at // 2 + 1, "most_rows": None if at == last else 2**at, "units": units}
            for at, units in enumerate(profile.counts)
        ],
        "noise": released.noise,
        "noise_std": profile.deviation,
        "cost": {"epsilon": released.epsilon, "rho": released.rho, "share": released.share},
        "query_id": profile.query_id,
    }


def show_new_profile(schema: Schema, table: str, released: ReleasedProfile) -> dict[str, Any]:
    """What an admin who asked for it gets, with what a unit keeps now and after the next import."""
    size = schema.sizes.get(table)
    now = size.most if isinstance(size, PrivateSize) else schema.tables[table].max_rows_per_unit
    return {
        "dataset": schema.dataset,
        "table": table,
        "profile": show_profile(released, schema.unit, now),
        "rows_per_unit_now": now,
        "rows_per_unit_next": schema.tables[table].max_rows_per_unit or released.profile.kept,
    }


def show_column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": str(column.type)}
    if column.low is not None and column.high is not None and column.step is not None:
        shown["bounds"] = [iso_of(end, column.type) or show_bound(end) for end in (column.low, column.high)]
        shown["step"] = show_bound(column.step)
    if column.domain is not None:
        shown["domain"] = list(column.domain)
    if column.unique:
        shown["unique"] = True
    if column.max_bytes is not None:
        shown["max_bytes"] = column.max_bytes
    return shown


def show_bound(value: Fraction) -> int | float | str:
    """A JSON number where it is exact, else a decimal string."""
    if value.denominator == 1 and abs(value.numerator) < 2**53:
        return int(value)
    text = show_fraction(value)
    return float(text) if Decimal(text) == Decimal(repr(float(text))) else text


def moment(ms: int | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def show_key(key: dict[str, Any]) -> dict[str, Any]:
    """Without the secret, which is not kept."""
    return {
        "prefix": key["prefix"],
        "owner": key["owner"],
        "name": key["name"],
        "role": key["role"],
        "datasets": key["datasets"],
        "created_at": moment(key["created_ms"]),
        "expires_at": moment(key["expires_ms"]),
        "revoked_at": moment(key["revoked_ms"]),
        "last_used_at": moment(key["used_ms"]),
    }


def show_events(events: Sequence[Allowance]) -> dict[str, Any]:
    """The dataset's own events, and those of each person who asked it."""
    whole, *persons = events
    own = {"dataset": whole.dataset, "safety_factor": whole.safety} | _happened(whole)
    return own | {"owners": [{"owner": person.owner} | _happened(person) for person in persons]}


def _happened(events: Allowance) -> dict[str, Any]:
    return {
        "failures": events.failures,
        "failures_allowed": events.failures_allowed,
        "running": events.open_holds,
        "late": events.late,
        "paused": events.paused,
    }
