"""Deny by default: every route declares who may call it, and the declaration is what happens."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.console import FILES, PAGE
from tests.fixtures.documented import routes
from tests.fixtures.service import House, open_house

RANK = {"public": -1, "viewer": 0, "analyst": 1, "admin": 2}
PUBLIC = {"/healthz", "/readyz", "/docs", "/docs/style.css", "/openapi.json"}
CONSOLE = {"/", "/console", "/console/"} | {f"/console/{name}" for name in FILES if name != PAGE}
SPENDING = {("POST", "/v1/queries"), ("PUT", "/v1/panels/{panel}"), ("POST", "/v1/panels/{panel}/refresh")}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    opened = open_house(tmp_path_factory.mktemp("roles"), requests_per_minute=1_000_000, metrics=True)
    yield opened
    opened.close()


def declared_roles(dependant: Any) -> set[str]:
    here = {dependant.call.role} if hasattr(dependant.call, "role") else set()
    return here.union(*(declared_roles(inner) for inner in dependant.dependencies)) if dependant.dependencies else here


def test_every_route_declares_exactly_one_role(house: House) -> None:
    found = routes(house.app)
    assert len(found) > 25
    for route in found:
        assert len(declared_roles(route.dependant)) == 1, f"{route.path} declares {declared_roles(route.dependant)}"


def test_only_the_listed_addresses_ask_for_no_key(house: House) -> None:
    public = {route.path for route in routes(house.app) if declared_roles(route.dependant) == {"public"}}
    assert public == PUBLIC | CONSOLE


def test_viewers_can_not_reach_anything_that_spends(house: House) -> None:
    by_name = {
        (method, route.path): declared_roles(route.dependant).pop()
        for route in routes(house.app)
        for method in route.methods
    }
    for name in SPENDING:
        assert RANK[by_name[name]] >= RANK["analyst"]


def test_the_declared_role_is_enforced_on_every_route(house: House) -> None:
    """No key: 401. A role below: 403. Whatever the body, and before it is looked at."""
    for route in routes(house.app):
        role = declared_roles(route.dependant).pop()
        path = re.sub(r"\{\w+\}", "shop", route.path)
        for method in route.methods - {"HEAD"}:
            stranger = house.client.request(method, path)
            if role == "public":
                assert stranger.status_code == 200
                continue
            assert stranger.status_code == 401, f"{method} {path}"
            for lower in ("viewer", "analyst"):
                if RANK[lower] < RANK[role]:
                    refused = house.client.request(method, path, headers=house.headers(lower))
                    assert refused.status_code == 403, f"{method} {path} as {lower}"
                    assert refused.json()["code"] == "not-allowed"


def test_a_revoked_or_expired_key_opens_nothing(house: House) -> None:
    made = house.ask("POST", "/v1/keys", json={"name": "soon gone", "role": "analyst", "datasets": ["shop"]}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert house.client.get("/v1/datasets", headers=headers).json()[0]["name"] == "shop"
    assert house.ask("DELETE", f"/v1/keys/{made['prefix']}").status_code == 204
    assert house.client.get("/v1/datasets", headers=headers).status_code == 401


def test_a_key_reads_only_what_it_was_given(house: House) -> None:
    house.ask("PUT", "/v1/datasets/clinic", json={"unit": "patient", "epsilon": "1"})
    assert [found["name"] for found in house.ask("GET", "/v1/datasets", "analyst").json()] == ["shop"]
    assert [found["name"] for found in house.ask("GET", "/v1/datasets").json()] == ["clinic", "shop"]
    assert house.ask("GET", "/v1/datasets/clinic/budget", "analyst").status_code == 404
