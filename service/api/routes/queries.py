"""Queries: ask, look again, follow, list. No decisions here; service/walk has them."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.api.asks import ask_of
from service.api.auth import Analyst, Viewer, Wired
from service.api.examples import QUERY_EXAMPLES
from service.api.formats import JSON, agreed_media_type, formed
from service.api.json_body import ExactRoute
from service.api.parameters import ID, AnswerForm, PageSize, QueryIdParameter
from service.api.requests import QueryWire
from service.api.responses.answers import ASKED, EVENTS, FOUND, PastQuery, QueryState
from service.api.responses.problems import problems
from service.catalog.declare import Name
from service.core.errors import AnswerFailed, NotFound, ServiceError
from service.walk.history import HistoryPart
from service.walk.submission import Submitted

router = APIRouter(prefix="/v1/queries", tags=["queries"], route_class=ExactRoute, responses=problems(403))

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="Names this attempt: a retry with the same key and body gets the stored answer and pays nothing.",
    ),
]
EVENTS_POLL_S, EVENTS_MAX = 0.5, 1200


def request_hash(query: QueryWire) -> str:
    """Names the body for Idempotency-Key: everything but how long the caller will wait."""
    return hashlib.sha256(query.model_dump_json(exclude={"wait"}).encode()).hexdigest()


@router.post("", status_code=201, responses=ASKED | problems(400, 404, 406, 409, 503))
def post_query(
    query: Annotated[QueryWire, QUERY_EXAMPLES],
    analyst: Analyst,
    parts: Wired,
    request: Request,
    key: IdempotencyKey = None,
    form: AnswerForm = None,
) -> Response:
    """Answer one query, once.

    201 with a new answer, 200 with a stored one, 202 with a Location when it takes longer than `wait`.
    """
    agreed_media_type(form, request.headers.get("accept"))  # before anything is charged
    submitted = parts.answerer.submit(ask_of(query), analyst, key, request_hash(query), float(query.wait))
    request.state.query_id = submitted.query_id
    return answer_response(submitted, request, form, query.dataset)


@router.get("/{query_id}", responses=FOUND | problems(404, 406, 409, 503))
def get_query(
    query_id: QueryIdParameter, viewer: Viewer, parts: Wired, request: Request, form: AnswerForm = None
) -> Response:
    """The stored answer, byte for byte; 202 while it is still on its way."""
    submitted = parts.answerer.find(query_id, viewer)
    response = answer_response(submitted, request, form, None)
    if response.status_code == 201:
        response.status_code = 200
    return response


@router.delete("/{query_id}", status_code=202, response_model=QueryState, responses=problems(404, 409, 503))
def cancel_query(query_id: QueryIdParameter, analyst: Analyst, parts: Wired) -> Response:
    """Stop working on it. Before the charge that is free; after it the charge stays."""
    submitted = parts.answerer.cancel(query_id, analyst)
    body = {"id": submitted.query_id, "status": submitted.status}
    return Response(json.dumps(body), status_code=202, media_type=JSON)


@router.get("", response_model=list[PastQuery])
def list_queries(
    analyst: Analyst,
    parts: Wired,
    dataset: Annotated[Name | None, Query()] = None,
    text: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    limit: PageSize = 100,
    before: Annotated[str | None, Query(pattern=ID)] = None,
) -> Response:
    """This key's own history, newest first; `before` a listed id, the next page of it."""
    found = parts.answerer.history(analyst, HistoryPart(dataset, text, limit, before))
    return Response(json.dumps(found, allow_nan=False, default=str), media_type=JSON)


@router.get("/{query_id}/events", response_class=StreamingResponse, responses=EVENTS | problems(404))
async def follow_query(query_id: QueryIdParameter, analyst: Analyst, parts: Wired) -> StreamingResponse:
    """Server-sent states until the query is answered or has failed."""

    def state() -> str:
        try:
            return parts.answerer.find(query_id, analyst).status
        except NotFound:
            raise
        except ServiceError:
            return "failed"

    first = await asyncio.to_thread(state)

    async def states() -> AsyncIterator[str]:
        current, sent = first, ""
        for _ in range(EVENTS_MAX):
            if current != sent:
                sent = current
                yield f"event: state\ndata: {json.dumps({'id': query_id, 'status': sent})}\n\n"
            if sent in ("answered", "failed"):
                return
            await asyncio.sleep(EVENTS_POLL_S)
            current = await asyncio.to_thread(state)

    return StreamingResponse(states(), media_type="text/event-stream")


def answer_response(submitted: Submitted, request: Request, form: str | None, dataset: str | None) -> Response:
    """The stored bytes in the form asked for, with an ETag; or where to look later."""
    location = f"/v1/queries/{submitted.query_id}"
    if submitted.status == "failed":
        raise AnswerFailed("the query could not be completed; its cost stays spent", {"query_id": submitted.query_id})
    if submitted.body is None:
        waiting = {"id": submitted.query_id, "status": submitted.status} | ({"dataset": dataset} if dataset else {})
        headers = {"Location": location, "Retry-After": "1"}
        return Response(json.dumps(waiting), status_code=202, media_type=JSON, headers=headers)
    media_type = agreed_media_type(form, request.headers.get("accept"))
    content = formed(submitted.body, form, media_type)
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "ETag": etag,
        "Location": location,
        "Vary": "Accept, Authorization",
        "Cache-Control": "private, no-cache",
    }
    if request.method == "GET" and etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    status = 201 if submitted.is_new else 200
    return Response(content, status_code=status, media_type=media_type, headers=headers)
