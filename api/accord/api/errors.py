"""One envelope for everything that goes wrong: `{"error": {"code", "message", "field"?, "value"?}}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from redis.exceptions import ResponseError
from starlette.exceptions import HTTPException

from accord.learner.log_throttle import LogThrottle
from accord.learner.store.errors import StoreCorruptError, StoreError, StoreUnavailableError

from .logs import event

SHOWN = 120
SHOWN_MESSAGE = 1000
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""For the page at `/`, whose route sets it: what it loads and asks comes from this server, and nothing is inline."""

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


class ErrorBody(BaseModel):
    """What went wrong: a code to branch on, a sentence to read, and the culprit where there is one."""

    code: str
    message: str
    field: str | None = None
    value: str | None = None


class ErrorEnvelope(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorBody


class ApiError(Exception):
    """A refusal that the client can understand.

    Attributes:
        status: HTTP status.
        code: stable word for programs.
    """

    status = 500
    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message, self.field, self.value, self.headers = message, field, value, headers
        super().__init__(message)


class ValueInvalidError(ApiError):
    """A path, query or body value that cannot be used."""

    status = 422
    code = "value_invalid"


class PairUnknownError(ApiError):
    """No engine has registered this pair."""

    status = 404
    code = "pair_unknown"

    def __init__(self, pair: str) -> None:
        super().__init__("no engine has registered this pair", field="pair", value=pair)


class VersionUnknownError(ApiError):
    """No such version is kept."""

    status = 404
    code = "version_unknown"


class NoOverrideError(ApiError):
    """The scope has no override."""

    status = 404
    code = "override_unknown"


class ConflictError(ApiError):
    """The request contradicts what stands, whoever sends it."""

    status = 409
    code = "conflict"


class PreconditionFailedError(ApiError):
    """What the client saw is not what stands any more."""

    status = 412
    code = "precondition_failed"


class PreconditionRequiredError(ApiError):
    """A change must name what it changes."""

    status = 428
    code = "precondition_required"


class NotReadyError(ApiError):
    """The api runs, but cannot do its work now."""

    status = 503
    code = "not_ready"


_UNREADABLE_BODY = "There was an error parsing the body"
"""What FastAPI answers with 400 for a body that defeats the JSON parser in another way than bad grammar."""

_CODES = {
    404: "route_unknown",
    405: "method_not_allowed",
    413: "body_too_large",
}


def envelope(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    value: object = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error response. The value is shown as text and cut, so that no input can break or bloat the answer."""
    error: dict[str, str] = {"code": code, "message": _shown(message, SHOWN_MESSAGE)}
    if field is not None:
        error["field"] = _shown(field)
    if value is not None:
        error["value"] = _shown(value)
    # Set here as well as in the middleware: a 500 is made outside of it.
    extra = {"cache-control": "no-store", **SECURITY_HEADERS, **(headers or {})}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        extra.setdefault("retry-after", "1")
    return JSONResponse({"error": error}, status, extra)


def internal() -> JSONResponse:
    """A fault of the server; it tells nothing of it."""
    return envelope(500, "internal", "the request failed for a reason that is in the server's log")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route declares in OpenAPI for its errors; 413, 414, 422, 431 and 500 come with every route."""
    return {
        status: {"model": ErrorEnvelope, "description": HTTPStatus(status).phrase}
        for status in sorted({413, 414, 422, 431, 500, *statuses})
    }


def install(app: FastAPI) -> None:
    """Makes every error of an application end in the envelope."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)


_told = LogThrottle()
"""Of what the store refuses: anybody may ask again and again."""


async def _api_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return envelope(
        error.status, error.code, error.message, field=error.field, value=error.value, headers=error.headers
    )


async def _store_error(_: Request, error: Exception) -> JSONResponse:
    # The client's own words name hosts, so they stay in the log.
    away, answered = isinstance(error, StoreUnavailableError), isinstance(error.__cause__, ResponseError)
    # That it is gone is told once by whoever follows its announcements; a refusal is told by nobody else.
    if (answered or not away) and (count := _told.count(str(error)[:SHOWN])):
        event("store failed", level=logging.ERROR, reason=str(error), count=count)
    if away:
        what = "cannot do this now, for a reason that is in the server's log" if answered else "does not answer"
        return envelope(503, "store_unavailable", f"the store {what}; nothing read before can stand in")
    if isinstance(error, StoreCorruptError):
        return envelope(500, "store_failed", "the store holds something that is not understood here")
    return envelope(500, "store_failed", "the store refuses this for a reason that is in the server's log")


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return envelope(422, ValueInvalidError.code, str(first["msg"]), field=field, value=first.get("input"))


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST and error.detail == _UNREADABLE_BODY:
        return envelope(422, ValueInvalidError.code, "the body cannot be read as JSON", field="body")
    headers = dict(error.headers or {})
    # HEAD is answered wherever GET is (middleware), and routes do not know it.
    if "GET" in headers.get("Allow", "").split(", "):
        headers["Allow"] += ", HEAD"
    message = error.detail if isinstance(error.detail, str) else HTTPStatus(error.status_code).phrase
    return envelope(error.status_code, _CODES.get(error.status_code, "http_error"), message, headers=headers)


async def _internal_error(_: Request, error: Exception) -> JSONResponse:
    return internal()


def _shown(value: object, limit: int = SHOWN) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):
        # Nested as deeply as JSON may be, or an integer longer than Python converts.
        text = f"<{type(value).__name__}>"
    text = text if len(text) <= limit else f"{text[: limit - 3]}..."
    # JSON can name half a character, which no answer of ours could be encoded with.
    return text.encode("utf-8", "backslashreplace").decode()
