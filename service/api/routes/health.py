"""Is it alive, is it ready, what has it counted. No key for the first two; nothing about data in any."""

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from service.api.auth import Admin, Wired, public
from service.api.middleware.metrics import PROMETHEUS_TEXT
from service.api.responses.operations import NOT_READY, Health, Readiness
from service.api.responses.problems import problems
from service.core.errors import NotFound

router = APIRouter(tags=["operations"])


@router.get("/healthz", dependencies=[Depends(public)], response_model=Health)
async def healthz() -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", dependencies=[Depends(public)], response_model=Readiness, responses=NOT_READY)
async def readyz(parts: Wired) -> Response:
    """The ledger can be written and the engine answers, when last looked at; 503 says which does not."""
    missing = parts.ready()
    return JSONResponse(
        {"status": "ready" if not missing else "not ready", "missing": missing}, 503 if missing else 200
    )


@router.get(
    "/metrics", response_class=PlainTextResponse, response_description="Prometheus text.", responses=problems(403, 404)
)
def metrics(admin: Admin, parts: Wired) -> Response:
    """Prometheus text; off unless HALFTONE_METRICS is set."""
    if parts.metrics is None:
        raise NotFound("metrics are switched off; set HALFTONE_METRICS=true")
    return PlainTextResponse(parts.metrics.text(), media_type=PROMETHEUS_TEXT)
