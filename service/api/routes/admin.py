"""What admins do: declare, import, grant, ration, look into the books, hand out keys."""

import json
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response

from service.api.auth import Admin, Wired
from service.api.bodies import moment, show_key, show_schema
from service.api.formats import JSON
from service.api.json_body import ExactRoute
from service.api.parameters import (
    AfterEntry,
    DatasetName,
    ImportIdParameter,
    KeyPrefixParameter,
    PageSize,
    Reason,
    TableName,
)
from service.api.requests import GrantWire, KeyWire, QuotaWire, ReasonWire
from service.api.responses.admin import Import, ImportStarted, InspectedFile, NewSecret, QuotaSet, ShownKey
from service.api.responses.datasets import DECLARED, Budget, Dataset
from service.api.responses.journal import AuditPage, JournalPage, LedgerVerdict
from service.api.responses.problems import problems
from service.catalog.apply import DatasetEntry
from service.catalog.declare import DatasetDeclaration, SourceDeclaration, TableDeclaration
from service.catalog.keys import NewKey
from service.core.amounts import parse_share
from service.core.errors import CatalogRefused

router = APIRouter(prefix="/v1", tags=["admin"], route_class=ExactRoute, responses=problems(403))
ENTRIES = "A list of entries, each by its kind."


def json_response(body: Any, status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(body, allow_nan=False, default=str), status, media_type=JSON, headers=headers)


@router.put(
    "/datasets/{dataset}",
    response_model=Dataset,
    responses=DECLARED | problems(409),
)
def put_dataset(dataset: DatasetName, wanted: DatasetDeclaration, admin: Admin, parts: Wired) -> Response:
    """Declare a dataset and open its account, or change what may be changed. The ceiling is the promise."""
    is_new = parts.administration.put_dataset(dataset, wanted, actor=admin.prefix)
    return json_response(show_schema(parts.catalog.schema(dataset)), 201 if is_new else 200)


@router.get("/datasets/{dataset}/declaration", response_model=DatasetEntry, responses=problems(404))
def get_declaration(dataset: DatasetName, admin: Admin, parts: Wired) -> Response:
    """Everything that was declared, sources included, as PUT and `halftone apply` take it."""
    declared = parts.catalog.declaration(dataset).model_dump(mode="json", exclude_defaults=True)
    tables = parts.catalog.table_declarations(dataset)
    declared["tables"] = {name: each.model_dump(mode="json", exclude_defaults=True) for name, each in tables.items()}
    return json_response(declared)


@router.delete("/datasets/{dataset}", status_code=204, responses=problems(404, 409))
def delete_dataset(dataset: DatasetName, admin: Admin, parts: Wired, reason: Reason = "") -> Response:
    """Stop serving it. The budget stays: it belongs to the people, and comes back with the name."""
    parts.administration.delete_dataset(dataset, actor=admin.prefix, reason=reason)
    return Response(status_code=204)


@router.put(
    "/datasets/{dataset}/tables/{table}",
    status_code=202,
    response_model=ImportStarted,
    responses=problems(404, 409),
)
def put_table(dataset: DatasetName, table: TableName, wanted: TableDeclaration, admin: Admin, parts: Wired) -> Response:
    """Declare a table and import it; the old version serves until the new one is ready."""
    import_id = parts.administration.put_table(dataset, table, wanted, actor=admin.prefix)
    return json_response({"import": import_id, "state": "running"}, 202, Location=f"/v1/imports/{import_id}")


@router.delete("/datasets/{dataset}/tables/{table}", status_code=204, responses=problems(404, 409))
def delete_table(dataset: DatasetName, table: TableName, admin: Admin, parts: Wired, reason: Reason = "") -> Response:
    parts.administration.delete_table(dataset, table, actor=admin.prefix, reason=reason)
    return Response(status_code=204)


@router.post("/datasets/{dataset}/tables/{table}/inspect", response_model=InspectedFile)
def inspect_table(
    dataset: DatasetName, table: TableName, source: SourceDeclaration, admin: Admin, parts: Wired
) -> Response:
    """What the file looks like. Admins only: it comes from the data, and nothing of it is declared by this."""
    return json_response(parts.administration.inspect(dataset, table, source, actor=admin.prefix))


@router.get("/imports/{import_id}", response_model=Import, responses=problems(404))
def get_import(import_id: ImportIdParameter, admin: Admin, parts: Wired) -> Response:
    """How far an import is; `detail` says why it failed."""
    found = parts.catalog.find_import(import_id)
    times = {f"{when}_at": moment(found.pop(f"{when}_ms")) for when in ("started", "finished")}
    return json_response(found | times)


@router.post("/datasets/{dataset}/grants", status_code=201, response_model=Budget, responses=problems(404, 409))
def post_grant(dataset: DatasetName, wanted: GrantWire, admin: Admin, parts: Wired) -> Response:
    """Set how much of the ceiling may be used. What is spent stays spent."""
    parts.administration.grant(dataset, wanted.epsilon, wanted.delta, actor=admin.prefix, reason=wanted.reason)
    return json_response(parts.answerer.budget(dataset, admin, False), 201)


@router.put("/datasets/{dataset}/quotas/{prefix}", response_model=QuotaSet, responses=problems(404, 409))
def put_quota(
    dataset: DatasetName, prefix: KeyPrefixParameter, wanted: QuotaWire, admin: Admin, parts: Wired
) -> Response:
    """Ration one key to a share of the budget. Rationing, not protection: the dataset's budget protects."""
    share = None if wanted.share is None else parse_share(wanted.share)
    parts.administration.set_quota(dataset, prefix, share, actor=admin.prefix, reason=wanted.reason)
    return json_response({"dataset": dataset, "prefix": prefix, "share": wanted.share})


@router.post("/datasets/{dataset}/pause", status_code=204, responses=problems(404))
def pause_dataset(dataset: DatasetName, why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """No more queries to this dataset until an admin resumes them."""
    parts.administration.pause(dataset, actor=admin.prefix, reason=why.reason)
    return Response(status_code=204)


@router.post("/datasets/{dataset}/resume", status_code=204, responses=problems(404))
def resume_dataset(dataset: DatasetName, why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """An admin has looked: queries go on, with a fresh allowance of failures."""
    parts.administration.resume(dataset, actor=admin.prefix, reason=why.reason)
    return Response(status_code=204)


@router.get(
    "/datasets/{dataset}/ledger", response_model=JournalPage, response_description=ENTRIES, responses=problems(404)
)
def get_ledger(
    dataset: DatasetName, admin: Admin, parts: Wired, after: AfterEntry = 0, limit: PageSize = 100
) -> Response:
    """The journal of one dataset, oldest first."""
    parts.catalog.declaration(dataset)
    return json_response(parts.administration.entries(dataset=dataset, after=after, limit=limit))


@router.post("/ledger/verify", response_model=LedgerVerdict)
def verify_ledger(admin: Admin, parts: Wired) -> Response:
    """Re-derive the chain and every balance from the first entry."""
    return json_response(parts.administration.verify())


@router.get("/audit", response_model=AuditPage, response_description=ENTRIES)
def get_audit(admin: Admin, parts: Wired, after: AfterEntry = 0, limit: PageSize = 100) -> Response:
    """Every admin act: who, when, what, why."""
    return json_response(parts.administration.acts(after=after, limit=limit))


@router.post("/keys", status_code=201, response_model=NewSecret)
def post_key(wanted: KeyWire, admin: Admin, parts: Wired) -> Response:
    """Make a key. The secret is in this answer and nowhere else."""
    expires = None if wanted.expires_at is None else int(_utc(wanted.expires_at).timestamp() * 1000)
    if expires is not None and expires <= datetime.now(UTC).timestamp() * 1000:
        raise CatalogRefused("expires_at is in the past")
    wish = NewKey(wanted.name, wanted.role, tuple(wanted.datasets), expires)
    prefix, secret = parts.administration.create_key(wish, actor=admin.prefix)
    made = {"prefix": prefix, "key": secret, "name": wanted.name, "role": wanted.role, "datasets": wanted.datasets}
    return json_response(made | {"expires_at": moment(expires)}, 201)


@router.get("/keys", response_model=list[ShownKey])
def list_keys(admin: Admin, parts: Wired) -> Response:
    """All keys, without their secrets."""
    return json_response([show_key(key) for key in parts.keys.every()])


@router.delete("/keys/{prefix}", status_code=204, responses=problems(404, 409))
def delete_key(prefix: KeyPrefixParameter, admin: Admin, parts: Wired) -> Response:
    """Revoke a key; the last admin key stays."""
    parts.administration.revoke_key(prefix, actor=admin.prefix)
    return Response(status_code=204)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
