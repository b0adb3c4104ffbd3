"""Who is calling, and may they? Deny by default: every route declares one of four roles.

Invariant H1: a route without a declared role does not exist (tests/attack/test_roles.py walks the
table). Roles rise: viewer, analyst, admin; `public` asks for no key. Only analysts and admins can spend.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.api.wiring import RouteTools
from service.core.errors import NotAllowed, NotSignedIn
from service.core.request import Principal, Role

RANK: dict[Role, int] = {"viewer": 0, "analyst": 1, "admin": 2}

bearer = HTTPBearer(auto_error=False, description="A key like ht_…; `halftone key create` makes one.")


async def parts_of(request: Request) -> RouteTools:
    """On the event loop: a request that asks for nothing else waits for no thread."""
    parts = request.app.state.parts
    assert isinstance(parts, RouteTools)
    return parts


def _sign_in(request: Request, parts: RouteTools, credentials: HTTPAuthorizationCredentials | None) -> Principal:
    try:
        principal = parts.keys.authenticate(credentials.credentials if credentials else "")
    except NotSignedIn:
        parts.limiter.stranger(request.client.host if request.client else "unknown")
        raise
    request.state.key_prefix = principal.prefix
    return principal


def role(least: Role) -> Callable[..., Any]:
    """A dependency that yields the caller if the key's role is at least this; it also holds one of their places."""

    def declared(
        request: Request,
        parts: Annotated[RouteTools, Depends(parts_of)],
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    ) -> Iterator[Principal]:
        principal = _sign_in(request, parts, credentials)
        with parts.limiter.admit(principal.person):
            if RANK[principal.role] < RANK[least]:
                raise NotAllowed(f"this needs the role {least}; the key's role is {principal.role}")
            yield principal

    declared.role = least  # type: ignore[attr-defined]
    return declared


async def public() -> None:
    """Declares that a route asks for no key. On the event loop, as parts_of is."""


public.role = "public"  # type: ignore[attr-defined]

Viewer = Annotated[Principal, Depends(role("viewer"))]
Analyst = Annotated[Principal, Depends(role("analyst"))]
Admin = Annotated[Principal, Depends(role("admin"))]
Wired = Annotated[RouteTools, Depends(parts_of)]
