"""What the store keeps of a release comes back as it was."""

from datetime import date, datetime

import numpy as np
import pytest

from service.released.codec import pack, unpack


def objects(*values: object) -> np.ndarray:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, -(2**63), 2**63 - 1], dtype=np.int64),
        np.array([0.5, -0.0, 1e300]),
        np.array([True, False]),
        objects("DE", None, "a\x00b", "=1+1"),
        objects(2**90, -(2**70), None),
        objects(1, 2, None),
        objects(date(2024, 2, 29), None),
        objects(datetime(2024, 2, 29, 12, 30, 1, 5), None),
        objects(True, None, False),
        objects(None, None),
        np.array([], dtype=np.int64),
    ],
)
def test_an_array_comes_back_as_it_was(array: np.ndarray) -> None:
    head, arrays = unpack(pack({"a": 1}, {"x": array, "y": np.arange(3)}))
    assert head == {"a": 1}
    assert arrays["x"].tolist() == array.tolist()
    assert [type(v) for v in arrays["x"].tolist()] == [type(v) for v in array.tolist()]
    assert arrays["y"].tolist() == [0, 1, 2]
