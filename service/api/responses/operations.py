"""Is the process alive, is it ready, what has it counted."""

from typing import Literal

from pydantic import BaseModel

from service.api.responses.values import Documented


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether the service can answer queries, and what does not answer it if not."""

    status: Literal["ready", "not ready"]
    missing: list[Literal["ledger", "engine"]]


NOT_READY: Documented = {503: {"model": Readiness, "description": "Something does not answer."}}
