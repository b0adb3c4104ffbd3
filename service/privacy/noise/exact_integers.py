"""Integer arrays that never wrap: int64 where that is proven to suffice, Python integers beyond.

Invariant X3: the result of `combine` is the exact integer combination, whatever the sizes. The choice
of representation depends on magnitudes only; both hold the same integers.
"""

from typing import Any

import numpy as np

from service.core.boundary import Array

SAFE = 2**62  # below this, the sum of two int64 terms can not wrap


def largest(array: Array) -> int:
    """The largest magnitude in an array of integers; 0 for an empty one."""
    if array.size == 0:
        return 0
    return max(abs(int(array.max())), abs(int(array.min())))


def whole(array: Array) -> Array:
    """The array as int64, or as Python integers where it is an object array already."""
    if array.dtype == object:
        return np.array([int(value) for value in array.ravel()], dtype=object).reshape(array.shape)
    assert array.dtype.kind in "iu", "only integers enter the exact arithmetic"
    return array.astype(np.int64) if array.dtype != np.uint64 else array.astype(object)


def combine(*terms: tuple[int, Array]) -> Array:
    """Σ coefficient · array, exactly."""
    arrays = [(coefficient, whole(array)) for coefficient, array in terms if coefficient]
    size = terms[0][1].shape
    if not arrays:
        return np.zeros(size, dtype=np.int64)
    reach = sum(abs(coefficient) * max(1, largest(array)) for coefficient, array in arrays)
    kind: Any = np.int64 if reach < SAFE else object
    total = np.zeros(size, dtype=kind)
    for coefficient, array in arrays:
        total = total + array.astype(kind) * (coefficient if kind is object else np.int64(coefficient))
    return total


def as_float(array: Array) -> Array:
    """float64, rounded once; only for values that are released already."""
    return array.astype(np.float64)
