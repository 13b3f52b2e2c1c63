"""What holds for every request: HEAD, security headers, and bounds on the size of its parts.

Plain ASGI, because Starlette's BaseHTTPMiddleware hides a client's disconnect from the long-polls.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import SECURITY_HEADERS, envelope

Headers = Sequence[tuple[bytes, bytes]]

MAX_URL_BYTES = 8 << 10
MAX_HEADER_BYTES = 16 << 10
MAX_HEADERS = 100

_ADDED = [(name.encode(), value.encode()) for name, value in ({"cache-control": "no-store"} | SECURITY_HEADERS).items()]


class HeadMiddleware:
    """Answers HEAD as GET without the body, on every route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes GET on in place of HEAD."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        # Streams end at once when nobody sees what they send.
        await self.app({**scope, "method": "GET", "accord.head": True}, receive, without_body)


class HeadersMiddleware:
    """Adds the security headers, and `no-store` where a route says nothing about caching."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, and the response with its headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_headers(message.get("headers", ()))
            await send(message)

        await self.app(scope, receive, named)


def with_headers(headers: Headers) -> Headers:
    """What a route says, and what every answer says unless the route did."""
    said = {name.lower() for name, _ in headers}
    return [*headers, *(item for item in _ADDED if item[0] not in said)]


class _BodyTooLargeError(HTTPException):
    """A body grew past the limit while it was read."""


class BodyLimitMiddleware:
    """Refuses bodies over a limit: by their declared length at once, otherwise as soon as they grow past it.

    Args:
        app: what it guards.
        limit: bytes.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with a body that cannot grow past the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = f"a body of more than {self.limit} bytes"
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        # The server has checked that it is a number; a longer one than any limit need not be converted.
        if len(declared) > 18 or (declared.isdigit() and int(declared) > self.limit):
            await envelope(413, "body_too_large", refusal)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self.limit:
                    raise _BodyTooLargeError(413, refusal)
            return message

        try:
            await self.app(scope, counted, send)
        except _BodyTooLargeError:
            # Who reads the body outside of the routes, as a held poll does, has nobody who makes an answer of this.
            await envelope(413, "body_too_large", refusal)(scope, receive, send)


class RequestLimitMiddleware:
    """Refuses paths, queries and headers of a size that no client of ours sends."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers 400, 414 or 431."""
        if scope["type"] == "http":
            if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
                words = f"a path and query of more than {MAX_URL_BYTES} bytes"
                await envelope(414, "uri_too_long", words)(scope, receive, send)
                return
            if not headers_fit(scope["headers"]):
                words = f"more than {MAX_HEADERS} headers, or {MAX_HEADER_BYTES} bytes of them"
                await envelope(431, "headers_too_large", words)(scope, receive, send)
                return
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
                # A proxy in front may have gone by the other one: what follows could be a request that it never saw.
                words, close = "a body with both Content-Length and Transfer-Encoding", {"connection": "close"}
                await envelope(400, "length_ambiguous", words, headers=close)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def headers_fit(headers: Headers) -> bool:
    """Whether a request has no more headers, and no larger ones, than this server reads."""
    return len(headers) <= MAX_HEADERS and sum([len(name) + len(value) for name, value in headers]) <= MAX_HEADER_BYTES
