"""Default bounds are stored once, by whoever comes first, and change by an admin's act alone; on both stores."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from service.catalog import kept_bounds
from service.catalog.declare import DatasetDeclaration
from service.catalog.kept_bounds import DefaultsMoved, KeptBounds
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
SIZES = {"visits": size_of_profile(Profile((900, 900, 0), 1.0, "q_3"), 4)}


class Charges:
    """A store that charges nothing: what a charge would write beside it, written."""

    def __init__(self, store: Store) -> None:
        self.store, self.kept = store, Catalog(store).kept_bounds

    def keep(self, dataset: str, used: Mapping[Basis, FittedBounds | None]) -> None:
        write = self.kept.keeping(dataset, used)
        if write is not None:
            self.store.write(write)


@pytest.fixture(params=["sqlite", "postgresql"])
def charges(request: pytest.FixtureRequest) -> Iterator[Charges]:
    store = Store(fresh_url(request.param))
    catalog = Catalog(store)
    for name in ("shop", "other"):
        catalog.put_dataset(name, DatasetDeclaration(unit="customer", epsilon="1"), lambda *noted: None)
    yield Charges(store)
    store.close()


@pytest.fixture
def kept(charges: Charges) -> KeptBounds:
    return charges.kept


def test_what_was_stored_first_stays(kept: KeptBounds, charges: Charges) -> None:
    assert kept.of("shop", [VISITS, JOINED]) == {}
    charges.keep("shop", {VISITS: FIRST})
    assert kept.of("shop", [VISITS, JOINED]) == {VISITS: FIRST}
    assert kept.keeping("shop", {VISITS: FIRST}) is None, "there already"
    with pytest.raises(DefaultsMoved):
        charges.keep("shop", {VISITS: SECOND, JOINED: SECOND})
    assert kept.of("shop", [VISITS, JOINED]) == {VISITS: FIRST}
    charges.keep("shop", {VISITS: FIRST, JOINED: SECOND})
    assert kept.of("shop", [JOINED]) == {JOINED: SECOND}
    assert kept.of("other", [VISITS, JOINED]) == {}, "each dataset has its own"
    assert kept.of("shop", []) == {}


def test_whoever_is_second_in_a_race_prices_again(kept: KeptBounds, charges: Charges) -> None:
    late = kept.keeping("shop", {VISITS: SECOND, JOINED: SECOND})
    assert late is not None
    charges.keep("shop", {VISITS: FIRST})
    with pytest.raises(DefaultsMoved):
        charges.store.write(late)
    assert kept.of("shop", [VISITS, JOINED]) == {VISITS: FIRST}, "nothing of it was stored"


def test_fixed_defaults_are_not_stored_and_give_way_to_what_is(kept: KeptBounds, charges: Charges) -> None:
    assert kept.keeping("shop", {VISITS: None}) is None
    charges.keep("shop", {VISITS: FIRST})
    with pytest.raises(DefaultsMoved):
        kept.keeping("shop", {VISITS: None})


def test_a_dataset_stores_only_so_many(kept: KeptBounds, charges: Charges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_bounds, "KEPT_MOST", 3)
    for times in (1, 2, 3):
        charges.keep("shop", {Basis(Reach("visits", times), 1): FIRST})
    another = Basis(Reach("visits", 4), 1)
    assert kept.of("shop", [VISITS, another]) == {VISITS: FIRST, another: None}
    assert kept.keeping("shop", {another: None}) is None
    with pytest.raises(DefaultsMoved):
        kept.keeping("shop", {another: FIRST})
    assert kept.of("other", [another]) == {}


def test_an_admin_accepts_what_the_profiles_say_now(kept: KeptBounds, charges: Charges) -> None:
    noted: list[tuple[str, str, Mapping[str, Any]]] = []

    def note(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
        noted.append((act, subject, change))

    charges.keep("shop", {VISITS: FIRST, JOINED: SECOND})
    charges.keep("other", {VISITS: FIRST})
    schema = Schema("shop", "customer", {}, sizes=SIZES)
    compared = {(each["table"], len(each["joined"])): each["after"] for each in kept.compared(schema)}
    assert compared == {("visits", 0): {"rows_per_unit": 2, "groups_per_unit": 1}, ("visits", 1): None}
    changed = kept.accept(schema, note)
    assert noted == [("defaults.refit", "shop", {"changed": changed})]
    assert len(changed) == 2
    assert kept.of("shop", [VISITS, JOINED]) == {VISITS: FittedBounds(2, 1, ("q_3",))}, "one fits no more"
    assert kept.of("other", [VISITS]) == {VISITS: FIRST}
    assert kept.accept(schema, note) == []


def test_an_act_that_can_not_be_noted_changes_nothing(kept: KeptBounds, charges: Charges) -> None:
    def refuse(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
        raise OSError("no journal")

    charges.keep("shop", {VISITS: FIRST})
    with pytest.raises(OSError, match="no journal"):
        kept.accept(Schema("shop", "customer", {}, sizes=SIZES), refuse)
    assert kept.of("shop", [VISITS]) == {VISITS: FIRST}
