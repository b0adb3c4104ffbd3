"""A YAML file as the catalog: what is refused, what would change, and how SmartNoise's is read."""

import pytest

from service.catalog.apply import read_catalog, referenced_first
from service.catalog.smartnoise import from_smartnoise
from service.core.errors import CatalogRefused

GOOD = """
datasets:
  shop:
    unit: customer
    epsilon: 0.1
    delta: 1e-6
    tables:
      lines:
        source: {kind: parquet, path: lines.parquet}
        private: true
        unit: {via: {column: order_id, references: orders.order_id}}
      orders:
        source: {kind: parquet, path: orders.parquet}
        private: true
        unit: {column: customer_id}
        columns: {order_id: {unique: true}}
"""

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\ndatasets: *b\n"


def test_a_good_file_is_read_with_exact_amounts() -> None:
    shop = read_catalog(GOOD).datasets["shop"]
    assert str(shop.epsilon) == "0.1"
    assert referenced_first(shop.tables) == ["orders", "lines"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "datasets: [",
        BOMB,
        "datasets: {}\ndatasets: {}\n",
        "datasets: {Shop: {unit: a, epsilon: 1}}",
        "datasets: {shop: {unit: '<b>', epsilon: 1}}",
        "datasets: {shop: {unit: a, epsilon: true}}",
        "datasets: {shop: {unit: a}}",
        "datasets: {shop: {unit: a, epsilon: 1, tables: {t: {source: {kind: csv, path: x}}}}}",
        "datasets: !!python/object/apply:os.system ['true']",
        "x" * 1_000_001,
        "{" * 5000,
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(CatalogRefused) as refused:
        read_catalog(text)
    assert len(refused.value.detail) < 300


def test_smartnoise_metadata_becomes_a_catalog_to_review() -> None:
    text = """
"":
  PUMS:
    PUMS:
      row_privacy: False
      rows: 1000
      max_ids: 2
      PersonID: {private_id: True, type: int}
      age: {type: int, lower: 0, upper: 100}
      income: {type: float, lower: 0, upper: 500000}
      married: {type: boolean}
"""
    made = read_catalog(from_smartnoise(text)).datasets["pums"].tables["pums"]
    assert made.unit is not None
    assert made.unit.column == "personid"
    assert made.columns["personid"].source_name == "PersonID"
    assert made.columns["age"].bounds is not None
    assert made.expected_rows == 1000


@pytest.mark.parametrize(
    "text",
    [
        "a: {s: {t: {row_privacy: True, x: {type: int}}}}",
        "a: {s: {t: {x: {type: int}}}}",
        "a: {s: {t: {x: {private_id: True, type: wood}}}}",
        "a: 7",
    ],
)
def test_smartnoise_metadata_without_a_person_is_refused(text: str) -> None:
    with pytest.raises(CatalogRefused):
        from_smartnoise(text)
