"""What admins do: declare, import, grant, ration, look into the books, hand out keys."""

import json
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response

from service.api.auth import Admin, Wired
from service.api.bodies import moment, show_events, show_key, show_new_profile, show_promise, show_schema
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
from service.api.requests import GrantWire, KeyWire, ProfileWire, QuotaWire, ReasonWire, WhomWire
from service.api.responses.admin import (
    ChangedDefault,
    Events,
    Import,
    ImportStarted,
    InspectedFile,
    KeptDefault,
    NewSecret,
    QuotaSet,
    ShownKey,
    TableDependents,
)
from service.api.responses.datasets import DECLARED, Budget, Dataset, ProfileReleased
from service.api.responses.journal import AuditPage, JournalPage, LedgerVerdict, RestoreAccepted
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
    shown = show_schema(parts.catalog.schema(dataset), parts.catalog.profiles(dataset))
    return json_response(shown | show_promise(parts.administration.terms(dataset)), 201 if is_new else 200)


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


@router.get("/datasets/{dataset}/tables/{table}/dependents", response_model=TableDependents, responses=problems(404))
def get_dependents(dataset: DatasetName, table: TableName, admin: Admin, parts: Wired) -> Response:
    """What a new import of this table would make payable again: to be looked at before it."""
    return json_response(parts.administration.dependents(dataset, table))


@router.post("/datasets/{dataset}/tables/{table}/inspect", response_model=InspectedFile)
def inspect_table(
    dataset: DatasetName, table: TableName, source: SourceDeclaration, admin: Admin, parts: Wired
) -> Response:
    """What the file looks like. Admins only: it comes from the data, and nothing of it is declared by this."""
    return json_response(parts.administration.inspect(dataset, table, source, actor=admin.prefix))


@router.post(
    "/datasets/{dataset}/tables/{table}/profile",
    status_code=201,
    response_model=ProfileReleased,
    responses=problems(404, 409, 500),
)
def profile_table(dataset: DatasetName, table: TableName, wanted: ProfileWire, admin: Admin, parts: Wired) -> Response:
    """Buy a new profile of a private table: about how many units and rows it has. Paid like any answer."""
    released = parts.administration.profile(dataset, table, wanted.share, actor=admin.prefix, reason=wanted.reason)
    return json_response(show_new_profile(parts.catalog.schema(dataset), table, released), 201)


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
def pause_dataset(dataset: DatasetName, why: WhomWire, admin: Admin, parts: Wired) -> Response:
    """No more queries to this dataset, or by one person to it, until an admin resumes them."""
    parts.administration.pause(dataset, actor=admin.prefix, reason=why.reason, owner=why.owner, prefix=why.key)
    return Response(status_code=204)


@router.post("/datasets/{dataset}/resume", status_code=204, responses=problems(404))
def resume_dataset(dataset: DatasetName, why: WhomWire, admin: Admin, parts: Wired) -> Response:
    """An admin has looked: queries (of one person, or of all) go on, with a fresh allowance of failures."""
    parts.administration.resume(dataset, actor=admin.prefix, reason=why.reason, owner=why.owner, prefix=why.key)
    return Response(status_code=204)


@router.get("/datasets/{dataset}/defaults", response_model=list[KeptDefault], responses=problems(404))
def get_defaults(dataset: DatasetName, admin: Admin, parts: Wired) -> Response:
    """Default bounds as they were first used, each beside what the profile of today would say."""
    found = parts.administration.defaults(dataset)
    return json_response([each | {"kept_at": moment(each.pop("kept_ms"))} for each in found])


@router.post("/datasets/{dataset}/defaults/refit", response_model=list[ChangedDefault], responses=problems(404))
def refit_defaults(dataset: DatasetName, why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """Accept the bounds that the profile of today says. What was answered under the old ones is paid for anew."""
    return json_response(parts.administration.refit(dataset, actor=admin.prefix, reason=why.reason))


@router.get("/datasets/{dataset}/events", response_model=Events, responses=problems(404))
def get_events(dataset: DatasetName, admin: Admin, parts: Wired) -> Response:
    """What failed after its charge and what came late, of the dataset and of every person who asked it."""
    return json_response(show_events(parts.administration.events(dataset)))


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


@router.post("/ledger/accept-restore", response_model=RestoreAccepted, responses=problems(409))
def accept_restore(why: ReasonWire, admin: Admin, parts: Wired) -> Response:
    """Go on with a ledger that was restored from a backup; what it may have forgotten counts as spent."""
    return json_response({"datasets": parts.administration.accept_restore(actor=admin.prefix, reason=why.reason)})


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
    wish = NewKey(wanted.name, wanted.role, tuple(wanted.datasets), expires, wanted.owner)
    prefix, secret = parts.administration.create_key(wish, actor=admin.prefix)
    made = {"prefix": prefix, "key": secret, "name": wanted.name, "role": wanted.role, "datasets": wanted.datasets}
    return json_response(made | {"expires_at": moment(expires), "owner": wanted.owner or prefix}, 201)


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
