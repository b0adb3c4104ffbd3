"""The API as a page: rendered here from the OpenAPI document, without scripts or anything from elsewhere.

Every example is a command that can be pasted; the key is read from the shell variable KEY.
"""

import html
import json
import shlex
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from service.api.auth import public
from service.api.formats import JSON
from service.api.shape_text import sketch

router = APIRouter(include_in_schema=False)

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h2{margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem;font-size:1.1rem}
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f2;padding:.8rem;overflow:auto;border-radius:4px}
details{color:#555}summary{cursor:pointer}
.method{display:inline-block;min-width:4rem;font-weight:700}.codes{color:#555}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}pre{background:#262626}.codes,details{color:#aaa}}
"""


@router.get("/docs/style.css", dependencies=[Depends(public)])
def style() -> Response:
    return Response(STYLE, media_type="text/css")


@router.get("/openapi.json", dependencies=[Depends(public)])
def openapi(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi())


@router.get("/docs", dependencies=[Depends(public)])
def docs(request: Request) -> HTMLResponse:
    """Every operation with its description, commands to paste, and the shape of what comes back."""
    return HTMLResponse(render(request.app.openapi(), str(request.base_url).rstrip("/")))


def render(document: dict[str, Any], base: str) -> str:
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Halftone API</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/docs/style.css"></head>'
        "<body>",
        f"<h1>Halftone API {html.escape(document['info']['version'])}</h1>",
        "<p>Put your key into the shell first: <code>export KEY=ht_…</code> · "
        '<a href="/openapi.json">openapi.json</a></p>',
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(render_operation(method.upper(), path, operation, base))
            parts += render_responses(operation["responses"], document["components"]["schemas"])
    return "\n".join([*parts, "</body></html>"])


def render_operation(method: str, path: str, operation: dict[str, Any], base: str) -> str:
    codes = " ".join(sorted(code for code in operation.get("responses", {}) if code < "400"))
    parts = [
        f'<h2><span class="method">{method}</span> <code>{html.escape(path)}</code></h2>',
        f"<p>{html.escape(operation.get('description') or operation.get('summary', ''))}</p>",
        f'<p class="codes">answers {html.escape(codes)}</p>',
    ]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = list(content.get("examples", {}).values()) or [None]
    for example in examples:
        if example is not None:
            parts.append(f"<p>{html.escape(example.get('summary', ''))}</p>")
        parts.append(f"<pre>{html.escape(command(method, base + path, example, operation))}</pre>")
    return "\n".join(parts)


def render_responses(responses: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """What comes back on success, folded up: one sketch for each status that has a body."""
    parts = []
    for status, response in sorted(responses.items()):
        content = response.get("content", {})
        if status < "300" and JSON in content:
            forms = "".join(f" · {html.escape(media_type)}" for media_type in content if media_type != JSON)
            shape = html.escape(sketch(content[JSON]["schema"], schemas))
            said = html.escape(response["description"])
            parts.append(f"<details><summary>{status}: {said}{forms}</summary><pre>{shape}</pre></details>")
    refused = " ".join(status for status in sorted(responses) if status >= "400")
    return [*parts, f'<p class="codes">or a problem: {refused}</p>']


def command(method: str, url: str, example: dict[str, Any] | None, operation: dict[str, Any]) -> str:
    """The curl command of one operation; without a key where none is asked for."""
    words = ["curl -s"] + ([] if method == "GET" else [f"-X {method}"])
    if operation.get("security"):
        words.append('-H "Authorization: Bearer $KEY"')
    if example is not None:
        words.append(f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(example['value']))}")
    return " ".join([*words, shlex.quote(url) if "{" not in url else f"'{url}'"])
