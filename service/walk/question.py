"""From a request to a priced question. Reads declarations and the ledger's terms, never data: failing here is free."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from service.catalog.check_columns import bound_value
from service.core.amounts import PICO, Terms, show_pico
from service.core.boundary import Array, Primitive
from service.core.errors import BoundsMissing, CatalogRefused, LossOutOfRange
from service.core.plan import Loss, Query
from service.core.request import Ask
from service.core.schema import DATE, TIMESTAMP, Schema
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedQuery
from service.sql.understand import understand
from service.walk.defaults import NOTHING_KEPT, Chosen, StoredDefaults, with_fitted_bounds
from service.walk.notes import plan_notes
from service.walk.promised_time import NOTHING_PROMISED, Promise

DELTA_PARTS = 100  # undeclared keys take a hundredth of the dataset's selection delta, unless the request says


@dataclass(frozen=True, slots=True)
class Question:
    """One request, understood and priced. Invariant P3: pricing it again gives the same price.

    `base`: per core, stored primitives that the answer is topped up from; then `priced` is the difference. `promise`
    is made where the engine and the dataset's safety factor are known (service/walk/pricing.py). `chosen`: per core,
    the default bounds, where neither the request nor the dataset gives them.
    """

    ask: Ask
    schema: Schema
    query: Query
    loss: Loss
    priced: PricedQuery
    notes: tuple[str, ...] = field(default=())
    base: tuple[Mapping[Primitive, Array], ...] = ()
    promise: Promise = NOTHING_PROMISED
    chosen: tuple[Chosen | None, ...] = ()


def put_question(ask: Ask, schema: Schema, terms: Terms, kept: StoredDefaults = NOTHING_KEPT) -> Question:
    """Understand the SQL, settle its bounds and what it may cost, price it."""
    ask = settled(ask, schema)
    query, chosen = with_fitted_bounds(understand(ask, schema), ask, schema, kept)
    loss = offered(ask, schema, query, terms)
    check_names(query, loss)
    priced = price(query, loss, terms)
    check_cap(priced, schema, terms)
    notes = (*query.notes, *plan_notes(query, schema), *priced.notes)
    return Question(ask, schema, query, loss, priced, notes=notes, chosen=chosen)


def settled(ask: Ask, schema: Schema) -> Ask:
    """The request with bounds that are dates as numbers of the column's unit."""
    if not ask.bounds.dated:
        return ask
    columns = dict(ask.bounds.columns)
    for key, (low, high) in ask.bounds.dated.items():
        table, _, name = key.partition(".")
        column = schema.tables[table].columns.get(name) if table in schema.tables else None
        if column is None or column.type not in (DATE, TIMESTAMP):
            raise BoundsMissing(
                f"the bounds of {key} are dates, and it is no column of dates or timestamps",
                {"field": "bounds.columns", "remedy": "give numbers: [low, high]"},
            )
        try:
            columns[key] = (bound_value(low, column.type, key), bound_value(high, column.type, key))
        except CatalogRefused:
            raise BoundsMissing(
                f"the bounds of {key} are no values of its type, {column.type}",
                {"field": "bounds.columns", "remedy": '["2024-01-01", "2025-01-01"] is how dates are written'},
            ) from None
    return replace(ask, bounds=replace(ask.bounds, columns=columns, dated={}))


def offered(ask: Ask, schema: Schema, query: Query, terms: Terms) -> Loss:
    """What the request offers, completed by the dataset's defaults."""
    loss = ask.loss or Loss("epsilon", 0)
    if loss.kind == "epsilon" and loss.amount == 0:
        if schema.defaults.epsilon is None:
            raise LossOutOfRange(
                "the request says nothing about what may be spent, and the dataset has no default",
                {"field": "epsilon", "remedy": 'give "epsilon", "rho", "accuracy" or "share"'},
            )
        loss = replace(loss, amount=schema.defaults.epsilon)
    if loss.delta == 0 and not all(plan.keys_declared for plan in query.cores):
        loss = replace(loss, delta=schema.defaults.delta or terms.delta_selection // DELTA_PARTS)
    return loss


def check_names(query: Query, loss: Loss) -> None:
    """Weights and a wanted accuracy name values of the answer; what they say of a key would be ignored."""
    values = [output.name for output in query.outer.outputs if output.role == "value"]
    accuracy = [] if loss.accuracy is None else [loss.accuracy.output]
    for field_, names in (("weights", loss.weights), ("accuracy", accuracy)):
        for name in names:
            if name not in values:
                raise LossOutOfRange(
                    f"{field_} names {name[:60]!r}, which is not a value of this query",
                    {"field": field_, "remedy": f"name one of: {', '.join(values)[:300]}"},
                )


def check_cap(priced: PricedQuery, schema: Schema, terms: Terms) -> None:
    """One query may take at most the dataset's cap, counted as a share of the ceiling for any mechanism."""
    most = schema.epsilon_per_query_max
    if most is None:
        return
    allowed = most * PICO // terms.epsilon_ceiling
    asked = priced.cost.orders[-1] if priced.law.pure else None
    if (asked is not None and asked > most) or (asked is None and priced.share > allowed):
        cost = f"epsilon {show_pico(asked)}" if asked is not None else f"a share of {show_pico(priced.share)}"
        raise LossOutOfRange(
            f"one query to {schema.dataset!r} may cost epsilon {show_pico(most)} at most"
            f" (a share of {show_pico(allowed)}); this one costs {cost}",
            {"field": "epsilon", "remedy": "ask for less accuracy, or ask an admin to raise epsilon_per_query_max"},
        )
