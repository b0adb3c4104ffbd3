"""Every error leaves as RFC 9457 problem+json, and none echoes what was sent or what an engine said."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.api.json_body import Malformed
from service.api.responses.problems import PROBLEM_JSON
from service.core.errors import AnswerFailed, BodyTooLarge, RateLimited, RequestMalformed, ServiceError, TooBusy
from service.core.validation_words import misfit

ERRORS_SHOWN = 10
METHODS = ("DELETE", "GET", "POST", "PUT")
QUERY_ROUTES = ("/v1/queries", "/v1/panels")  # where a bug may come after the charge
HTTP_CODES = {
    400: ("request-malformed", "The request does not fit the contract", "the request could not be read"),
    404: ("not-found", "Nothing here", "there is nothing at this address"),
    405: ("method-not-allowed", "This address does not take that method", "see the Allow header for what it takes"),
    413: (BodyTooLarge.code, BodyTooLarge.title, "the request body is longer than this service reads"),
}
log = logging.getLogger("halftone")


def problem(code: str, *, title: str, status: int, detail: str, extra: Mapping[str, Any] | None = None) -> Response:
    body = {"type": f"urn:halftone:problem:{code}", "title": title, "status": status, "detail": detail, "code": code}
    body |= {"budget_spent": False} | dict(extra or {})
    return Response(json.dumps(body, allow_nan=False), status_code=status, media_type=PROBLEM_JSON)


def service_problem(error: ServiceError) -> Response:
    extra = {**error.extra, "budget_spent": error.budget_spent}
    response = problem(error.code, title=error.title, status=error.status, detail=error.detail, extra=extra)
    if isinstance(error, RateLimited | TooBusy):
        response.headers["Retry-After"] = str(error.extra.get("retry_after_s", 1))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="halftone"'
    return response


def validation_problem(error: RequestValidationError) -> Response:
    """What did not fit, by place and rule; the input itself is never repeated."""
    shown = []
    for item in error.errors()[:ERRORS_SHOWN]:
        given = item.get("input")
        if isinstance(given, Malformed):
            return service_problem(RequestMalformed(given.why))
        if isinstance(given, bytes):
            return service_problem(RequestMalformed("send JSON, with the header Content-Type: application/json"))
        shown.append(misfit(item))
    first = shown[0] if shown else {"where": "body", "message": "does not fit"}
    detail = f"{first['where']}: {first['message']}"
    kind = RequestMalformed
    return problem(kind.code, title=kind.title, status=kind.status, detail=detail, extra={"errors": shown})


def handle_errors(app: FastAPI) -> None:
    """One shape for all failures, whoever raised them."""

    @app.exception_handler(ServiceError)
    async def _service(request: Request, error: ServiceError) -> Response:
        request.state.problem_code = error.code
        return service_problem(error)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        request.state.problem_code = RequestMalformed.code
        return validation_problem(error)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        code, title, detail = HTTP_CODES.get(error.status_code, HTTP_CODES[400])
        request.state.problem_code = code
        extra = {"remedy": "docs/api.md lists every address"} if code == "not-found" else {}
        response = problem(code, title=title, status=error.status_code, detail=detail, extra=extra)
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["Allow"] = ", ".join(methods_of(request))
        return response

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> Response:
        request.state.problem_code = "bug"
        return unexpected(request.url.path, request.state.request_id, error)


def methods_of(request: Request) -> list[str]:
    """All methods of this address: the framework names those of the first route that it finds."""
    return [
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]


def unexpected(path: str, request_id: str, error: BaseException) -> Response:
    """A bug. Logged by type and place, without its message: a message may hold a value."""
    trace = error.__traceback__
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    log.error("bug", extra={"request_id": request_id, "kind": type(error).__name__, "places": places[-8:]})
    if path.startswith(QUERY_ROUTES):
        return service_problem(AnswerFailed("the query could not be completed; treat its cost as spent"))
    return problem(
        "internal-error",
        title="Something broke here",
        status=500,
        detail="the operator's log has it under the request id",
    )
