"""Default bounds are stored once, by whoever comes first, and change by an admin's act alone; on both stores."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from service.catalog.declare import DatasetDeclaration
from service.catalog.kept_bounds import KeptBounds
from service.catalog.store import Catalog
from service.core.fitted import Basis, FittedBounds
from service.core.reach import Reach
from service.core.schema import Schema
from service.core.sizes import Profile, size_of_profile
from service.store.database import Store
from service.store.transaction import Transaction
from tests.fixtures.ledgers import fresh_url

VISITS, JOINED = Basis(Reach("visits"), 1), Basis(Reach("visits", 3, ("orders",)), None)
FIRST, SECOND = FittedBounds(64, 5, ("q_1",)), FittedBounds(128, 5, ("q_2",))
SIZES = {"visits": size_of_profile(Profile((900, 900), 1.0, "q_3"), 4)}


@pytest.fixture(params=["sqlite", "postgresql"])
def kept(request: pytest.FixtureRequest) -> Iterator[KeptBounds]:
    store = Store(fresh_url(request.param))
    catalog = Catalog(store)
    for name in ("shop", "other"):
        catalog.put_dataset(name, DatasetDeclaration(unit="customer", epsilon="1"), lambda *noted: None)
    yield catalog.kept_bounds
    store.close()


def test_what_was_stored_first_stays(kept: KeptBounds) -> None:
    assert kept.of("shop", [VISITS, JOINED]) == {}
    assert kept.keep("shop", {VISITS: FIRST}) == {VISITS: FIRST}
    assert kept.keep("shop", {VISITS: SECOND, JOINED: SECOND}) == {VISITS: FIRST, JOINED: SECOND}
    assert kept.of("shop", [JOINED]) == {JOINED: SECOND}
    assert kept.of("other", [VISITS, JOINED]) == {}, "each dataset has its own"
    assert kept.of("shop", []) == {}


def test_an_admin_accepts_what_the_profiles_say_now(kept: KeptBounds) -> None:
    noted: list[tuple[str, str, Mapping[str, Any]]] = []

    def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
        noted.append((act, subject, change))

    kept.keep("shop", {VISITS: FIRST, JOINED: SECOND})
    kept.keep("other", {VISITS: FIRST})
    schema = Schema("shop", "customer", {}, sizes=SIZES)
    compared = {(each["table"], len(each["joined"])): each["after"] for each in kept.compared(schema)}
    assert compared == {("visits", 0): {"rows_per_unit": 2, "groups_per_unit": 1}, ("visits", 1): None}
    changed = kept.accept(schema, note)
    assert noted == [("defaults.refit", "shop", {"changed": changed})]
    assert len(changed) == 2
    assert kept.of("shop", [VISITS, JOINED]) == {VISITS: FittedBounds(2, 1, ("q_3",))}, "one fits no more"
    assert kept.of("other", [VISITS]) == {VISITS: FIRST}
    assert kept.accept(schema, note) == []


def test_an_act_that_can_not_be_noted_changes_nothing(kept: KeptBounds) -> None:
    def refuse(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
        raise OSError("no journal")

    kept.keep("shop", {VISITS: FIRST})
    with pytest.raises(OSError, match="no journal"):
        kept.accept(Schema("shop", "customer", {}, sizes=SIZES), refuse)
    assert kept.of("shop", [VISITS]) == {VISITS: FIRST}
