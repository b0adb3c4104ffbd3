"""Panels: named queries that dashboards poll, any number of times, with a viewer key."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from service.api.asks import ask_of
from service.api.auth import Analyst, Viewer, Wired
from service.api.formats import CSV, JSON, agreed_media_type, csv_of, flat_names, flat_rows, formed
from service.api.json_body import ExactRoute
from service.api.parameters import AnswerForm, PageSize, PanelDataset, PanelName
from service.api.requests import PanelWire, QuestionWire
from service.api.responses.panels import PAST, POLLED, ShownPanel
from service.api.responses.problems import problems
from service.catalog.keys import may_read, readable_datasets
from service.core.amounts import parse_epsilon, show_pico
from service.core.ask_codec import request_to_text, written_from_text
from service.core.errors import Conflict, LossOutOfRange, NotAllowed, NotFound
from service.core.request import Principal
from service.released.panels import Panel, now_text, parse_period
from service.released.publish import RELEASED_AT
from service.released.store import StoredAnswer
from service.walk.panel_refresh import bounds_change

router = APIRouter(prefix="/v1/panels", tags=["panels"], route_class=ExactRoute)

REFRESH_SHOWS = ("columns", "rows", "low_95", "high_95", "data_version")


@router.put("/{panel}", response_model=ShownPanel, responses=problems(400, 403, 404, 409, 503))
def put_panel(panel: PanelName, wanted: PanelWire, analyst: Analyst, parts: Wired) -> Response:
    """Name a query, among the panels of its dataset. It is understood and priced now, so that a panel that can not
    work is refused now."""
    question = QuestionWire.model_validate(wanted.model_dump(include=set(QuestionWire.model_fields)))
    ask = ask_of(question)
    parts.catalog.schema(ask.dataset, analyst)
    if ask.fresh:
        raise LossOutOfRange("a panel pays once per data version; fresh can not be set", {"field": "fresh"})
    unit, cost = parts.answerer.line_cost(ask, analyst)
    line = parse_epsilon(wanted.budget, "budget")
    if line < cost:
        raise LossOutOfRange(
            f"the line of {unit} {show_pico(line)} does not cover one refresh, which costs {show_pico(cost)}",
            {"field": "budget", "remedy": "give a larger budget, or a query that costs less"},
        )
    period = parse_period(wanted.refresh)
    stored = parts.panels.put(
        Panel(
            name=panel,
            dataset=ask.dataset,
            owner=analyst.prefix,
            request=request_to_text(ask, question.model_dump(mode="json")),
            title=wanted.title,
            chart=json.dumps(wanted.chart or {}, default=str),
            refresh_seconds=period,
            unit=unit,
            budget_pico=line,
            refresh_pico=cost,
            next_refresh_at=None if period is None else now_text(),
        )
    )
    return Response(json.dumps(show_panel(stored, analyst)), media_type=JSON)


@router.post("/{panel}/refresh", response_model=ShownPanel, responses=problems(403, 404, 409))
def refresh_panel(panel: PanelName, analyst: Analyst, parts: Wired, dataset: PanelDataset = None) -> Response:
    """Refresh now, from the panel's line; only its owner or an admin may."""
    found = readable_panel(panel, dataset, analyst, parts)
    if analyst.role != "admin" and found.owner != analyst.prefix:
        raise NotAllowed("only the panel's owner or an admin may refresh it")
    return Response(json.dumps(show_panel(parts.refresher.refresh(found), analyst)), media_type=JSON)


@router.get("", response_model=list[ShownPanel])
def list_panels(viewer: Viewer, parts: Wired) -> Response:
    """The panels of datasets that this key may read."""
    shown = [show_panel(panel, viewer) for panel in parts.panels.all() if may_read(viewer, panel.dataset)]
    return Response(json.dumps(shown), media_type=JSON)


@router.get("/{panel}", responses=POLLED | problems(404, 406, 409))
def get_panel(
    panel: PanelName,
    viewer: Viewer,
    parts: Wired,
    request: Request,
    dataset: PanelDataset = None,
    form: AnswerForm = None,
) -> Response:
    """The last good answer with its age; 304 when it has not changed."""
    media_type = agreed_media_type(form, request.headers.get("accept"))
    found = readable_panel(panel, dataset, viewer, parts)
    body, has_answer = panel_body(found, viewer, parts)
    content = formed(body, form, media_type) if has_answer else body
    media_type = media_type if has_answer else JSON
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Vary": "Accept, Authorization", "Cache-Control": "private, max-age=1, must-revalidate"}
    if found.refreshed_at is not None:
        age = datetime.now(UTC) - datetime.fromisoformat(found.refreshed_at)
        headers["Age"] = str(max(0, int(age.total_seconds())))
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


@router.get("/{panel}/history", responses=PAST | problems(404, 409))
def get_history(
    panel: PanelName,
    viewer: Viewer,
    parts: Wired,
    dataset: PanelDataset = None,
    limit: PageSize = 100,
    form: Annotated[Literal["json", "flat", "csv"], Query(alias="format")] = "json",
) -> Response:
    """Past refreshes, newest first, each with its rows and intervals; `flat` and `csv` are one time series."""
    found = readable_panel(panel, dataset, viewer, parts)
    past = []
    for refreshed_at, query_id in parts.panels.history(found, limit + 1):
        stored = answer_of(found, query_id, parts)
        if stored is not None:
            past.append((refreshed_at, query_id, json.loads(stored.body)))
    before = [answer for _, _, answer in past[1:]]
    past = past[:limit]
    if form == "json":
        shown = [
            {
                "refreshed_at": refreshed_at,
                "id": query_id,
                **{name: answer[name] for name in REFRESH_SHOWS},
                "bounds_change": bounds_change(before[at], answer) if at < len(before) else None,
            }
            for at, (refreshed_at, query_id, answer) in enumerate(past)
        ]
        return Response(json.dumps(shown, ensure_ascii=False, allow_nan=False), media_type=JSON)
    rows = [{RELEASED_AT: refreshed_at, **row} for refreshed_at, _, answer in past for row in flat_rows(answer)]
    if form == "flat":
        return Response(json.dumps(rows, ensure_ascii=False, allow_nan=False), media_type=JSON)
    names = dict.fromkeys(name for _, _, answer in past for name in flat_names(answer))
    return Response(csv_of(rows, [RELEASED_AT, *names]), media_type=CSV)


@router.delete("/{panel}", status_code=204, responses=problems(403, 404, 409))
def delete_panel(panel: PanelName, analyst: Analyst, parts: Wired, dataset: PanelDataset = None) -> Response:
    """Forget a panel. What it spent stays spent, and its answers stay readable by their ids."""
    found = readable_panel(panel, dataset, analyst, parts)
    if analyst.role != "admin" and found.owner != analyst.prefix:
        raise NotAllowed("only the panel's owner or an admin may delete it")
    parts.refresher.forget(found)
    return Response(status_code=204)


def readable_panel(name: str, dataset: str | None, principal: Principal, parts: Wired) -> Panel:
    """The panel of that name, among those of datasets that this key may read: absent and not yours are the same
    answer (invariant V4)."""
    found = parts.panels.named(name, readable_datasets(principal))
    found = [panel for panel in found if dataset in (None, panel.dataset)]
    if not found:
        raise NotFound("there is no such panel, or this key may not read it", {"panel": name})
    if len(found) > 1:
        having = ", ".join(panel.dataset for panel in found)
        raise Conflict(
            f"several datasets have a panel named {name}: {having}",
            {"panel": name, "field": "dataset", "remedy": f"say which: ?dataset={found[0].dataset}"},
        )
    return found[0]


def answer_of(panel: Panel, query_id: str, parts: Wired) -> StoredAnswer | None:
    """A stored answer of the panel's own dataset: its readers may not be readers of what had the name before."""
    stored = parts.answers.get(query_id)
    return stored if stored is not None and stored.dataset == panel.dataset else None


def panel_body(panel: Panel, reader: Principal, parts: Wired) -> tuple[bytes, bool]:
    """The stored answer plus what the panel knows of itself; False: there is no answer yet.

    Joined as bytes: both are JSON objects, and a poll need not read a large answer to add a few fields.
    """
    stored = None if panel.query_id is None else answer_of(panel, panel.query_id, parts)
    own = show_panel(panel, reader)
    if stored is None or stored.status != "answered":
        return json.dumps(own, ensure_ascii=False, allow_nan=False).encode(), False
    del own["dataset"]  # the answer names it
    return stored.body[:-1] + b"," + json.dumps(own, ensure_ascii=False, allow_nan=False).encode()[1:], True


def show_panel(panel: Panel, reader: Principal) -> dict[str, Any]:
    """Name, state and money; the query too, for those who may ask. The owner is a key's public prefix."""
    given = {} if reader.role == "viewer" else {"query": written_from_text(panel.request)}
    return given | {
        "panel": panel.name,
        "dataset": panel.dataset,
        "title": panel.title,
        "chart": json.loads(panel.chart),
        "owner": panel.owner,
        "state": panel.state,
        "state_code": panel.state_code or None,
        "state_detail": panel.state_detail,
        "bounds_change": panel.bounds_change,
        "refresh_seconds": panel.refresh_seconds,
        "refreshed_at": panel.refreshed_at,
        "next_refresh_at": panel.next_refresh_at,
        "runs_out_on": panel.runs_out_on(),
        "budget": {
            "unit": panel.unit,
            "line": show_pico(panel.budget_pico),
            "spent": show_pico(panel.spent_pico),
            "per_refresh": show_pico(panel.refresh_pico),
        },
    }
