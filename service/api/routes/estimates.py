"""What would it cost? Reads the request, the catalog and the ledger; never data, never a charge."""

import json
from typing import Annotated

from fastapi import APIRouter, Response

from service.api.asks import ask_of, fitted
from service.api.auth import Analyst, Wired
from service.api.examples import ESTIMATE_EXAMPLES
from service.api.formats import JSON
from service.api.json_body import ExactRoute
from service.api.requests import EstimateListWire, Estimates
from service.api.responses.estimates import Estimate, EstimateList
from service.api.responses.problems import problems

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=ExactRoute)


@router.post("", response_model=Estimate | EstimateList, responses=problems(400, 403, 404, 503))
def post_estimate(wanted: Annotated[Estimates, ESTIMATE_EXAMPLES], analyst: Analyst, parts: Wired) -> Response:
    """Cost, mechanisms, noise and interval widths of a query, or of several together."""
    if isinstance(wanted, EstimateListWire):
        with parts.limiter.admit_list(analyst.person, len(wanted.queries)):
            body = parts.answerer.estimate_all(fitted(wanted), analyst)
    else:
        body = parts.answerer.estimate(ask_of(wanted), analyst)
    return Response(json.dumps(body, allow_nan=False), media_type=JSON)
