"""What is to be done: a question, in whose name, under which attempt, and from which line."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from service.core.request import Ask, Principal
from service.core.versions import versions_of, versions_to_text
from service.released.store import StoredAnswer
from service.walk.question import Question
from service.walk.sameness import all_tables

FAILED = "the query could not be completed; its cost stays spent"


class Line(Protocol):
    """A panel's budget line: asked right before the charge, so that it and the charge agree."""

    def take(self, question: Question) -> None:
        """Pay for this question or raise; nothing is charged then."""

    def give_back(self) -> None:
        """The charge was refused: undo the last take."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One request to be answered. `key` and `request_hash` name the attempt; `asked_at` is its arrival."""

    ask: Ask
    principal: Principal
    request_hash: str
    key: str | None = None
    line: Line | None = None
    asked_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))

    @property
    def attempt(self) -> tuple[str, str] | None:
        return None if self.key is None else (self.principal.prefix, self.key)


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where a query stands. `body` holds the stored bytes once it is answered."""

    query_id: str
    status: str
    is_new: bool
    body: bytes | None


def to_store(
    submission: Submission,
    question: Question,
    query_id: str,
    body: bytes,
    *,
    replay_of: str | None = None,
    failed: bool = False,
) -> StoredAnswer:
    """An answer as the store keeps it, under the time at which it was asked for."""
    return StoredAnswer(
        query_id=query_id,
        principal=submission.principal.prefix,
        dataset=question.query.dataset,
        data_version=question.schema.data_version,
        sql=submission.ask.sql,
        asked_at=submission.asked_at,
        status="failed" if failed else "answered",
        body=body,
        replay_of=replay_of,
        versions=versions_to_text(versions_of(question.schema, all_tables(question.query))),
    )
