"""Every failure that a caller may see, in one tree.

ServiceError
├── RequestMalformed        422  request-malformed        JSON does not fit the wire model
├── NotSignedIn             401  not-signed-in            key missing, unknown, expired or revoked
├── NotAllowed              403  not-allowed              the key's role is too low
├── DatasetUnknown          404  dataset-unknown          absent, or not yours: the same answer
├── NotFound                404  not-found                any other absent thing, or not yours
├── SyntaxRefused           400  syntax-refused           could not parse; line and column
├── ConstructRefused        422  construct-refused        parsed, but not on the allow-list
├── QuestionTooLarge        422  question-too-large       at worst it passes the deadline or the memory
├── BoundsMissing           422  bounds-missing           catalog or request cannot be priced
├── LossOutOfRange          422  loss-out-of-range        an amount of privacy that is no amount
├── CatalogRefused          422  catalog-refused          an admin's declaration that makes no sense
├── SourceRefused           422  source-refused           a file that may not or can not be imported
├── IdempotencyKeyReused    409  idempotency-key-reused   same key, other body
├── Conflict                409  conflict                 the thing is in use, or already there
├── BudgetExhausted         403  budget-exhausted         names the account, its remainder, this cost
├── DatasetPaused           403  dataset-paused           the failure allowance is used up
├── LedgerRestored          403  ledger-restored          the ledger is older than its mark: before any charge
├── NotAcceptable           406  not-acceptable           no offered form fits the Accept header
├── BodyTooLarge            413  body-too-large           before parsing
├── TooBusy                 503  too-busy                 before reserve
├── RateLimited             429  rate-limited             before reserve
├── OuterRefused            422  outer-refused            released values do not fit the outer SQL; spent
└── AnswerFailed            500  answer-failed            anything after reserve; the budget is spent

Bugs are AssertionError, never a ServiceError.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(eq=False)
class ServiceError(Exception):
    """A failure that a caller may see.

    Invariant E1: `detail` and `extra` are functions of the request, the catalog and the ledger,
    never of a private row. So no message of an engine that holds some is ever copied into them.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    status: ClassVar[int]
    budget_spent: ClassVar[bool] = False

    detail: str
    extra: dict[str, str | int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail


@contextmanager
def placed(where: str) -> Iterator[None]:
    """A refusal of one of several questions says which of them it means."""
    try:
        yield
    except ServiceError as refused:
        refused.extra.setdefault("where", where)
        raise


class RequestMalformed(ServiceError):
    code, title, status = "request-malformed", "The request does not fit the contract", 422


class NotSignedIn(ServiceError):
    code, title, status = "not-signed-in", "A valid key is needed", 401


class NotAllowed(ServiceError):
    code, title, status = "not-allowed", "This key may not do that", 403


class DatasetUnknown(ServiceError):
    code, title, status = "dataset-unknown", "No such dataset", 404


class NotFound(ServiceError):
    code, title, status = "not-found", "Nothing here", 404


class SyntaxRefused(ServiceError):
    """`extra` holds line and column where the parser stopped."""

    code, title, status = "syntax-refused", "The SQL could not be parsed", 400


class ConstructRefused(ServiceError):
    """`extra` holds construct, line, column and remedy: what to write instead."""

    code, title, status = "construct-refused", "This SQL is not answered", 422


class QuestionTooLarge(ServiceError):
    """`extra` holds construct and remedy. Decided from public sizes, before any charge."""

    code, title, status = "question-too-large", "This question could take too long", 422


class BoundsMissing(ServiceError):
    code, title, status = "bounds-missing", "A bound is needed", 422


class LossOutOfRange(ServiceError):
    code, title, status = "loss-out-of-range", "That amount of privacy can not be spent", 422


class CatalogRefused(ServiceError):
    code, title, status = "catalog-refused", "That declaration makes no sense", 422


class SourceRefused(ServiceError):
    code, title, status = "source-refused", "That source can not be imported", 422


class IdempotencyKeyReused(ServiceError):
    code, title, status = "idempotency-key-reused", "This Idempotency-Key belongs to another request", 409


class Conflict(ServiceError):
    code, title, status = "conflict", "That can not be done now", 409


class BudgetExhausted(ServiceError):
    code, title, status = "budget-exhausted", "The privacy budget does not cover this query", 403


class DatasetPaused(ServiceError):
    code, title, status = "dataset-paused", "Queries are paused until an admin looks", 403


class LedgerRestored(ServiceError):
    code, title, status = "ledger-restored", "The ledger is older than it was", 403


class NotAcceptable(ServiceError):
    code, title, status = "not-acceptable", "No offered form fits", 406


class BodyTooLarge(ServiceError):
    code, title, status = "body-too-large", "The request body is too large", 413


class TooBusy(ServiceError):
    code, title, status = "too-busy", "All engine slots are taken", 503


class RateLimited(ServiceError):
    code, title, status = "rate-limited", "Too many requests", 429


class OuterRefused(ServiceError):
    """The free outer SQL failed on released values: its text depends on them alone and may be shown.
    The core stays stored, so a corrected question over it costs nothing."""

    code, title, status, budget_spent = "outer-refused", "The released values do not fit this SQL", 422, True


class ReplayRefused(OuterRefused):
    """The same over a release that somebody has paid for before: this time nothing was spent."""

    budget_spent = False


class AnswerFailed(ServiceError):
    code, title, status, budget_spent = "answer-failed", "The query could not be completed", 500, True


class FailedForNothing(AnswerFailed):
    """A bug that showed before the charge: nothing was spent."""

    budget_spent = False
