"""What admins do: declare, import, grant, ration, look into the books, hand out keys."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from service.api.auth import Admin, Wired
from service.api.formats import JSON
from service.api.json_body import ExactRoute
from service.api.requests import GrantWire, KeyWire, QuotaWire, ReasonWire
from service.api.routes.datasets import DatasetName, show_schema
from service.catalog.declare import DatasetDeclaration, SourceDeclaration, TableDeclaration, Words
from service.catalog.keys import NewKey
from service.core.amounts import parse_share
from service.core.errors import CatalogRefused
from service.core.schema import NAME_PATTERN

router = APIRouter(prefix="/v1", tags=["admin"], route_class=ExactRoute)

TableName = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=63)]
Prefix = Annotated[str, Path(pattern=r"^[a-z0-9]{1,16}$")]
After = Annotated[int, Query(ge=0, le=2**62)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Reason = Annotated[Words, Query(description="Why; kept in the journal.")]


def answer(body: Any, status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(body, allow_nan=False, default=str), status, media_type=JSON, headers=headers)


@router.put("/datasets/{dataset}", response_model=dict[str, Any], responses={201: {"model": dict[str, Any]}})
def put_dataset(dataset: DatasetName, wanted: DatasetDeclaration, admin: Admin, parts: Wired) -> Response:
    """Declare a dataset and open its account, or change what may be changed. The ceiling is the promise."""
    is_new = parts.administration.put_dataset(dataset, wanted, actor=admin.prefix)
    return answer(show_schema(parts.catalog.schema(dataset)), 201 if is_new else 200)


@router.get("/datasets/{dataset}/declaration", response_model=dict[str, Any])
def get_declaration(dataset: DatasetName, admin: Admin, parts: Wired) -> Response:
    """Everything that was declared, sources included, as PUT and `halftone apply` take it."""
    declared = parts.catalog.declaration(dataset).model_dump(mode="json", exclude_defaults=True)
    tables = parts.catalog.table_declarations(dataset)
    declared["tables"] = {name: each.model_dump(mode="json", exclude_defaults=True) for name, each in tables.items()}
    return answer(declared)


@router.delete("/datasets/{dataset}", status_code=204)
def delete_dataset(dataset: DatasetName, admin: Admin, parts: Wired, reason: Reason = "") -> Response:
    """Stop serving it. The budget stays: it belongs to the people, and comes back with the name."""
    parts.administration.delete_dataset(dataset, actor=admin.prefix, reason=reason)
    return Response(status_code=204)


@router.put("/datasets/{dataset}/tables/{table}", status_code=202, response_model=dict[str, Any])
def put_table(dataset: DatasetName, table: TableName, wanted: TableDeclaration, admin: Admin, parts: Wired) -> Response:
    """Declare a table and import it; the old version serves until the new one is ready."""
    import_id = parts.administration.put_table(dataset, table, wanted, actor=admin.prefix)
    return answer({"import": import_id, "state": "running"}, 202, Location=f"/v1/imports/{import_id}")


@router.delete("/datasets/{dataset}/tables/{table}", status_code=204)
def delete_table(dataset: DatasetName, table: TableName, admin: Admin, parts: Wired, reason: Reason = "") -> Response:
    parts.administration.delete_table(dataset, table, actor=admin.prefix, reason=reason)
    return Response(status_code=204)


@router.post("/datasets/{dataset}/tables/{table}/inspect", response_model=dict[str, Any])
def inspect_table(
    dataset: DatasetName, table: TableName, source: SourceDeclaration, admin: Admin, parts: Wired
) -> Response:
    """What the file looks like. Admins only: it comes from the data, and nothing of it is declared by this."""
    return answer(parts.administration.inspect(dataset, table, source, actor=admin.prefix))


@router.get("/imports/{import_id}", response_model=dict[str, Any])
def get_import(
    import_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9_]{1,40}$")], admin: Admin, parts: Wired
) -> Response:
    """How far an import is; `detail` says why it failed."""
    found = parts.catalog.find_import(import_id)
    times = {f"{when}_at": moment(found.pop(f"{when}_ms")) for when in ("started", "finished")}
    return answer(found | times)


@router.post("/datasets/{dataset}/grants", status_code=201, response_model=dict[str, Any])
def post_grant(dataset: DatasetName, wanted: GrantWire, admin: Admin, parts: Wired) -> Response:
    """Set how much of the ceiling may be used. What is spent stays spent."""
    parts.administration.grant(dataset, wanted.epsilon, wanted.delta, actor=admin.prefix, reason=wanted.reason)
    return answer(parts.answerer.budget(dataset, admin, False), 201)


@router.put("/datasets/{dataset}/quotas/{prefix}", response_model=dict[str, Any])
def put_quota(dataset: DatasetName, prefix: Prefix, wanted: QuotaWire, admin: Admin, parts: Wired) -> Response:
    """Ration one key to a share of the budget. Rationing, not protection: the dataset's budget protects."""
    share = None if wanted.share is None else parse_share(wanted.share)
    parts.administration.set_quota(dataset, prefix, share, actor=admin.prefix, reason=wanted.reason)
    return answer({"dataset": dataset, "prefix": prefix, "share": wanted.share})


@router.post("/datasets/{dataset}/pause", status_code=204)
def pause_dataset(dataset: DatasetName, why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """No more queries to this dataset until an admin resumes them."""
    parts.administration.pause(dataset, actor=admin.prefix, reason=why.reason)
    return Response(status_code=204)


@router.post("/datasets/{dataset}/resume", status_code=204)
def resume_dataset(dataset: DatasetName, why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """An admin has looked: queries go on, with a fresh allowance of failures."""
    parts.administration.resume(dataset, actor=admin.prefix, reason=why.reason)
    return Response(status_code=204)


@router.get("/datasets/{dataset}/ledger", response_model=list[dict[str, Any]])
def get_ledger(dataset: DatasetName, admin: Admin, parts: Wired, after: After = 0, limit: Limit = 100) -> Response:
    """The journal of one dataset, oldest first."""
    parts.catalog.declaration(dataset)
    return answer(parts.administration.entries(dataset=dataset, after=after, limit=limit))


@router.post("/ledger/verify", response_model=dict[str, Any])
def verify_ledger(admin: Admin, parts: Wired) -> Response:
    """Re-derive the chain and every balance from the first entry."""
    return answer(parts.administration.verify())


@router.get("/audit", response_model=list[dict[str, Any]])
def get_audit(admin: Admin, parts: Wired, after: After = 0, limit: Limit = 100) -> Response:
    """Every admin act: who, when, what, why."""
    return answer(parts.administration.acts(after=after, limit=limit))


@router.post("/keys", status_code=201, response_model=dict[str, Any])
def post_key(wanted: KeyWire, admin: Admin, parts: Wired) -> Response:
    """Make a key. The secret is in this answer and nowhere else."""
    expires = None if wanted.expires_at is None else int(_utc(wanted.expires_at).timestamp() * 1000)
    if expires is not None and expires <= datetime.now(UTC).timestamp() * 1000:
        raise CatalogRefused("expires_at is in the past")
    wish = NewKey(wanted.name, wanted.role, tuple(wanted.datasets), expires)
    prefix, secret = parts.administration.create_key(wish, actor=admin.prefix)
    made = {"prefix": prefix, "key": secret, "name": wanted.name, "role": wanted.role, "datasets": wanted.datasets}
    return answer(made | {"expires_at": moment(expires)}, 201)


@router.get("/keys", response_model=list[dict[str, Any]])
def list_keys(admin: Admin, parts: Wired) -> Response:
    """All keys, without their secrets."""
    return answer([show_key(key) for key in parts.keys.every()])


@router.delete("/keys/{prefix}", status_code=204)
def delete_key(prefix: Prefix, admin: Admin, parts: Wired) -> Response:
    """Revoke a key; the last admin key stays."""
    parts.administration.revoke_key(prefix, actor=admin.prefix)
    return Response(status_code=204)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment(ms: int | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def show_key(key: dict[str, Any]) -> dict[str, Any]:
    """Without the secret, which is not kept."""
    return {
        "prefix": key["prefix"],
        "name": key["name"],
        "role": key["role"],
        "datasets": key["datasets"],
        "created_at": moment(key["created_ms"]),
        "expires_at": moment(key["expires_ms"]),
        "revoked_at": moment(key["revoked_ms"]),
        "last_used_at": moment(key["used_ms"]),
    }
