"""The console's files, without a key: read once at start, each at an address of its own.

There is one route per listed file, so no part of a request is ever joined to a path. The page calls the
same endpoints as any client, with the key that its user typed; nothing here knows who is looking.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Depends, Request, Response

from service.api.auth import public
from service.console import FILES, PAGE

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_ADDRESSES = ("/", "/console", "/console/")


def console_router() -> APIRouter:
    """A route for every file, and three for the page itself."""
    router = APIRouter(include_in_schema=False)
    folder = files("service.console")
    for name, media_type in FILES.items():
        served = file_route((folder / name).read_bytes(), media_type)
        addresses = PAGE_ADDRESSES if name == PAGE else (f"/console/{name}",)
        for address in addresses:
            router.add_api_route(address, served, methods=["GET"], dependencies=[Depends(public)])
    return router


def file_route(content: bytes, media_type: str) -> Callable[..., Awaitable[Response]]:
    """Asked for again at every visit (no-cache), sent again only when it has changed."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}

    async def served(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return served
