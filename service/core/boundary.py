"""The boundary between exact and released values, in types.

Invariant B1: exact values leave the engine inside an ExactTable and are opened once, in privacy/release.py, through
core/unsealing.py; what it opens goes into a mechanism and nowhere else. Python can not make this absolute; an import
contract, a tidy test and a canary test stand behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class ExactTable:
    """Integer columns (int64, or Python integers in an object array where they may be larger) and,
    for a stage that finds groups, the sealed group keys. No way to look inside but unsealing."""

    __slots__ = ("__columns", "__keys", "__opened")

    def __init__(self, columns: Mapping[str, Array], keys: Mapping[str, Array] | None = None) -> None:
        self.__columns = dict(columns)
        self.__keys = dict(keys or {})
        self.__opened = False

    def _open(self) -> tuple[dict[str, Array], dict[str, Array]]:
        assert not self.__opened, "a sealed table opens once"
        self.__opened = True
        return self.__columns, self.__keys

    def __repr__(self) -> str:
        return "ExactTable(sealed)"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("an ExactTable can not be shown, compared, tested, iterated or copied")

    __str__ = __format__ = __eq__ = __ne__ = __bool__ = __iter__ = __len__ = _refuse
    __hash__ = __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Public group keys, in the order in which they will be answered: declared, or released.

    One array per key column (object arrays of Scalar; None is NULL). No GROUP BY: no columns, size 1.
    """

    columns: Mapping[str, Array]
    size: int

    @staticmethod
    def single() -> "KeyTable":
        return KeyTable({}, 1)


@dataclass(frozen=True, slots=True)
class ReleasedColumn:
    """One released aggregate over all groups.

    `values` are float64 or int64; `low` and `high` the 95% interval of the noise, NaN where unknown.
    `noise_std` and `half_width` where they are the same for all rows.
    """

    values: Array
    low: Array
    high: Array
    noise_std: float | None = None
    half_width: float | None = None


class Primitive:
    """What one released array is: which integers, under which bounds, with how much noise. A frozen value, compared
    as such; service/privacy/primitives/names.py knows the texts under which they are stored."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """What left the boundary: keys and aggregates of one core, plus what the receipt says of them.

    `replicas` maps an aggregate to a (replicas, groups) array drawn from the released values and the
    known noise; intervals of arithmetic over aggregates come from them. `primitives` keeps the
    released primitive values (and the variance of their noise), so that a later question can be
    derived from them or topped up.
    """

    keys: KeyTable
    columns: Mapping[str, ReleasedColumn]
    replicas: Mapping[str, Floats]
    primitives: Mapping[Primitive, Array]
    notes: tuple[str, ...] = ()
