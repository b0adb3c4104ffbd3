"""What a caller may know about datasets: declarations, budget, and what was released of their sizes."""

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from service.api.auth import Analyst, Viewer, Wired
from service.api.bodies import show_promise, show_schema
from service.api.formats import JSON
from service.api.json_body import ExactRoute
from service.api.parameters import DatasetName
from service.api.responses.datasets import Budget, Dataset, DatasetListed
from service.api.responses.problems import problems

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=ExactRoute)


@router.get("", response_model=list[DatasetListed])
def list_datasets(viewer: Viewer, parts: Wired) -> Response:
    """The datasets that this key may read."""
    names = parts.catalog.datasets(viewer)
    found = [{"name": name, "unit": parts.catalog.declaration(name).unit} for name in names]
    return Response(json.dumps(found), media_type=JSON)


@router.get("/{dataset}", response_model=Dataset, responses=problems(404))
def get_dataset(dataset: DatasetName, viewer: Viewer, parts: Wired) -> Response:
    """Tables, columns, types, declared bounds and domains, the defaults that a query gets, and released sizes."""
    schema = parts.catalog.schema(dataset, viewer)
    shown = show_schema(schema, parts.catalog.profiles(dataset)) | show_promise(parts.administration.terms(dataset))
    return Response(json.dumps(shown, default=str), media_type=JSON)


@router.get("/{dataset}/budget", response_model=Budget, responses=problems(403, 404))
def get_budget(
    dataset: DatasetName,
    analyst: Analyst,
    parts: Wired,
    detail: Annotated[Literal["orders"] | None, Query()] = None,
) -> Response:
    """Granted, spent and remaining as epsilon at delta, and this key's own quota."""
    parts.catalog.schema(dataset, analyst)
    budget = parts.answerer.budget(dataset, analyst, detail is not None)
    return Response(json.dumps(budget, allow_nan=False), media_type=JSON)
