"""The text under which a released primitive is stored: written and read here and nowhere else.

Version 1 has no mark. It separates by spaces, of a Part and of a ChosenValue:

    vector source low high clip bound law amount
    function source p low width bins bound epsilon law around

A later version begins with its mark and a space: "v2 …"; no word of version 1 begins so. What version 1 can say stays
written in it, to the byte, so that services of before and after a change can share one store. Primitives are compared
as values, never as texts.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from service.core.aggregates import AGGREGATES, ReleasedAs
from service.core.boundary import Primitive
from service.privacy.noise.laws import LAWS
from service.privacy.primitives.chosen import ChosenValue
from service.privacy.primitives.noised import VECTORS, Clip, Part

MARKED = re.compile(r"v\d+ ")
VECTOR_NAMED = {vector.name: vector for vector in VECTORS}
CHOICE_NAMED = {name: spec for name, spec in AGGREGATES.items() if spec.released_as is ReleasedAs.CHOSEN}
assert VECTOR_NAMED.keys().isdisjoint(CHOICE_NAMED), "the first word says which of the two a name is"
LAW_NAMED = {law.name: law for law in LAWS}
CLIP_NAMED: dict[str, Clip] = {clip: clip for clip in get_args(Clip)}


def written(primitive: Primitive) -> str:
    """The name of a primitive in the store."""
    fields: tuple[object, ...]
    match primitive:
        case Part(vector, source, low, high, clip, bound, law, amount):
            fields = (vector.name, source, low, high, clip, bound, law.name, amount)
        case ChosenValue(spec, source, p, low, width, bins, bound, epsilon, law, around):
            fields = (spec.name, source, p, low, width, bins, bound, epsilon, law.name, around)
        case _:
            raise AssertionError(f"{type(primitive).__name__} has no name in the store")
    return " ".join(str(field) for field in fields)


@lru_cache(maxsize=4096)
def read(text: str) -> Part | ChosenValue | None:
    """The primitive that was stored under a name, or None where a later version wrote it: it is left alone then, and
    what needs it is paid for as if it were not there."""
    first = text.split(" ")[0]
    if MARKED.match(text) or first not in VECTOR_NAMED | CHOICE_NAMED:
        return None
    return _part(text) if first in VECTOR_NAMED else _chosen(text)


def _part(text: str) -> Part:
    vector, source, low, high, clip, bound, law, amount = text.split(" ")
    codes = int(low), int(high)
    return Part(VECTOR_NAMED[vector], source, *codes, CLIP_NAMED[clip], int(bound), LAW_NAMED[law], Fraction(amount))


def _chosen(text: str) -> ChosenValue:
    function, source, p, low, width, bins, bound, epsilon, law, around = text.split(" ")
    grid = int(low), int(width), int(bins), int(bound)
    amounts = Fraction(epsilon), LAW_NAMED[law], Fraction(around)
    return ChosenValue(CHOICE_NAMED[function], source, Fraction(p), *grid, *amounts)
