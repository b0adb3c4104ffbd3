"""JSON read exactly: decimals stay decimal, and what JSON does not have is refused.

FastAPI reads the body before it asks who is calling. So a body that can not be read becomes a
Malformed value, which fails validation after the key was checked: strangers learn nothing but 401.
"""

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

DIGITS_MAX = 100
DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class Malformed:
    """In place of a body that can not be read; `why` is for the caller."""

    why: str


class _Refused(ValueError):
    """What JSON does not have, in words for the caller."""


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _Refused("a number in the body has too many digits")
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > DIGITS_MAX:
        raise _Refused("a number in the body has too many digits")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _Refused("a number in the body is out of range") from None


def _constant(text: str) -> Any:
    raise _Refused("NaN and Infinity are no JSON numbers")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused("an object in the body names a field twice")
    return found


def _check(value: Any, depth: int = 0) -> None:
    """Refuse lone surrogates (no text in any encoding) and nesting that nothing here needs."""
    if depth > DEPTH_MAX:
        raise _Refused("the body is nested too deeply")
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for name, inner in value.items():
            name.encode()
            _check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth + 1)


def read_exact(body: bytes) -> Any:
    """The body as Python values, or Malformed with a sentence."""
    try:
        value = json.loads(
            body.decode(), parse_float=_decimal, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_object
        )
        _check(value)
    except _Refused as refused:
        return Malformed(str(refused))
    except json.JSONDecodeError as error:
        return Malformed(f"the body is no JSON: line {error.lineno}, column {error.colno}")
    except UnicodeError:
        return Malformed("the body is no UTF-8 text")
    except RecursionError:
        return Malformed("the body is nested too deeply")
    return value


class ExactRequest(Request):
    """A request whose JSON body is read by read_exact."""

    async def json(self) -> Any:
        return read_exact(await self.body())


class ExactRoute(APIRoute):
    """A route whose JSON body is read by read_exact."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await inner(ExactRequest(request.scope, request.receive))

        return handler
