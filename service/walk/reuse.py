"""Questions that a stored release already answers: free, because nothing new leaves the boundary.

A core is stored as its keys and noisy primitives under its frame (service/walk/sameness.py). Another question
on the same frame and the same versions of its tables is derived from it when the primitives express all of its
aggregates, under the same bounds and with no more noise than its price would buy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from service.core.boundary import Array, KeyTable, Primitive, ReleasedTable
from service.core.plan import Attribute, Measure, Plan
from service.core.versions import versions_of, versions_to_text
from service.privacy.pricing.no_worse import no_worse, under_same_bounds
from service.privacy.pricing.priced import PricedPlan
from service.privacy.pricing.refine import difference
from service.privacy.primitives.derive import derivable, derive
from service.privacy.primitives.names import read, written
from service.privacy.primitives.noised import Part
from service.released.store import Answers, StoredRelease
from service.walk.answer_body import receipt
from service.walk.outer_sql import replicas_wanted
from service.walk.question import Question
from service.walk.sameness import core_tables, frame, identity

KEY, PRIMITIVE = "key:", "primitive:"
ELSEWHERE = "-"  # no measure has this name


@dataclass(frozen=True, slots=True)
class Replayed:
    """Released cores from the store, and the query that paid for them."""

    tables: tuple[ReleasedTable, ...]
    replay_of: str
    receipt: Mapping[str, Any]


OnFrames = tuple[list[StoredRelease], ...]


def on_frames(answers: Answers, question: Question) -> OnFrames:
    """Per core, what was released before on the same rows, keys and versions of their tables; newest first."""
    schema = question.schema
    return tuple(
        answers.releases(schema.dataset, versions_of(schema, core_tables(priced.plan)), frame(priced.plan))
        for priced in question.priced.plans
    )


def kept(question: Question, core: int, table: ReleasedTable, *, query_id: str) -> StoredRelease:
    """One released core as the store keeps it."""
    priced = question.priced.plans[core]
    plan = priced.plan
    arrays: dict[str, Array] = {f"{KEY}{name}": values for name, values in table.keys.columns.items()}
    shapes: dict[str, list[int]] = {}
    for primitive, values in table.primitives.items():
        name = written(primitive)
        shapes[name] = list(values.shape)
        arrays[f"{PRIMITIVE}{name}"] = values.reshape(-1)
    head = {
        "size": table.keys.size,
        "shapes": shapes,
        "sources": _sources(plan),
        "selection": _selection(priced),
        "receipt": receipt(question),
    }
    schema = question.schema
    versions = versions_to_text(versions_of(schema, core_tables(plan)))
    return StoredRelease(query_id, core, schema.dataset, schema.data_version, frame(plan), head, arrays, versions)


def replay(question: Question, stored: OnFrames) -> Replayed | None:
    """All cores from stored releases, or None: then the whole question is paid for."""
    tables: list[ReleasedTable] = []
    sources: list[StoredRelease] = []
    for index, priced in enumerate(question.priced.plans):
        found = _find(question, index, priced, stored[index])
        if found is None:
            return None
        tables.append(found[0])
        sources.append(found[1])
    return Replayed(tuple(tables), sources[0].query_id, sources[0].head["receipt"])


def lessened(question: Question, stored: OnFrames) -> Question:
    """The question at the price of what stored Gaussian releases lack, if they help."""
    if not any(stored):
        return question
    bases = [
        under_same_bounds(priced, _union(priced.plan, releases)) if priced.plan.keys_declared else {}
        for priced, releases in zip(question.priced.plans, stored, strict=True)
    ]
    cheaper = difference(question.priced, [tuple(base) for base in bases])
    if cheaper is None or not cheaper.events:
        return question
    note = "Refines a stored answer: only the difference is paid."
    return replace(question, priced=cheaper, base=tuple(bases), notes=(*question.notes, note))


def _find(
    question: Question, core: int, priced: PricedPlan, stored: list[StoredRelease]
) -> tuple[ReleasedTable, StoredRelease] | None:
    """One stored release that serves, else all of the frame together where their keys are the same."""
    plan = priced.plan
    offers = [(_renamed(plan, one), one) for one in stored]
    if plan.keys_declared and len(stored) > 1:
        offers.append((_union(plan, stored), stored[0]))
    for everything, source in offers:
        primitives = under_same_bounds(priced, everything)
        if _selection_serves(source.head["selection"], _selection(priced)) and no_worse(priced, primitives):
            assert derivable(plan, primitives)
            wanted = replicas_wanted(question.query) if core == 0 else frozenset()
            return derive(plan, _keys(source), primitives, replicas=wanted), source
    return None


def _union(plan: Plan, stored: Iterable[StoredRelease]) -> dict[Primitive, Array]:
    """Everything released on one frame whose keys are declared: the same groups in the same order."""
    union: dict[Primitive, Array] = {}
    for one in stored:
        union = _renamed(plan, one) | union
    return union


def _renamed(plan: Plan, stored: StoredRelease) -> dict[Primitive, Array]:
    """Stored primitives under the names that this plan gives to the same measures; others are left out."""
    here = {digest: name for name, digest in _sources(plan).items()}
    sources: Mapping[str, str] = stored.head["sources"]
    names = {old: here[digest] for old, digest in sources.items() if digest in here}
    primitives: dict[Primitive, Array] = {}
    for name, shape in stored.head["shapes"].items():
        item = read(name)
        if item is None:
            continue
        if item.source in sources:
            if item.source not in names and not (isinstance(item, Part) and item.vector.with_rows):
                continue
            # COUNT(*) can be read beside a measure that nobody asks for
            item = replace(item, source=names.get(item.source, ELSEWHERE))
        primitives[item] = stored.arrays[f"{PRIMITIVE}{name}"].reshape(shape)
    return primitives


def _sources(plan: Plan) -> dict[str, str]:
    """Names of measures and attributes, with what they are."""
    named: list[Measure | Attribute] = [*plan.measures, *plan.attributes]
    return {item.name: identity(plan, item) for item in named}


def _keys(stored: StoredRelease) -> KeyTable:
    columns = {name.removeprefix(KEY): values for name, values in stored.arrays.items() if name.startswith(KEY)}
    return KeyTable({name: np.asarray(values, dtype=object) for name, values in columns.items()}, stored.head["size"])


def _selection(priced: PricedPlan) -> dict[str, Any] | None:
    """How undeclared keys were chosen: what a later question must not exceed."""
    if priced.plan.keys_declared:
        return None
    bounds = priced.plan.bounds
    return {
        "law": priced.law.name,
        "amounts": [part.amount for part in priced.of("keys")],
        "delta": str(priced.delta),
        "groups_per_unit": bounds.groups_per_unit,
        "min_units": bounds.min_units,
        "slots": bounds.slots,
    }


def _selection_serves(stored: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> bool:
    if stored is None or wanted is None:
        return stored is wanted
    same = all(stored[name] == wanted[name] for name in ("law", "groups_per_unit", "min_units", "slots"))
    return (
        same
        and Fraction(stored["delta"]) >= Fraction(wanted["delta"])
        and _at_least(stored["amounts"], wanted["amounts"])
    )


def _at_least(stored: Iterable[int], wanted: Iterable[int]) -> bool:
    return all(ours >= theirs for ours, theirs in zip(stored, wanted, strict=True))
