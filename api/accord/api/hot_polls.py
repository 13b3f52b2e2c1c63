"""The answer that engines ask for most, without the way through the routes."""

from __future__ import annotations

import re
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from .etag import IfNoneMatch
from .routes.coefficients import answer
from .services import Services
from .tables import Table

_PATH = re.compile(r"/v1/pairs/([a-z0-9][a-z0-9._-]{0,127})/coefficients")

Head = list[tuple[bytes, bytes]]


class HotPolls:
    """Middleware: answers a plain GET of coefficients that are in memory and current.

    Everything else passes, so this only ever says what the route would say: the same bytes and headers. It stands
    behind the guard and all other middleware.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or passes the request on."""
        if scope["type"] == "http" and scope["method"] == "GET" and not (scope["query_string"] or scope["root_path"]):
            found = _PATH.fullmatch(scope["path"])
            if found is not None:
                services: Services = scope["app"].state.services
                table = services.tables.at_hand(found[1])
                if table is not None:
                    held = _held(*[value for name, value in scope["headers"] if name == b"if-none-match"])
                    full, unchanged = _heads(table)
                    status, head, body = (304, unchanged, b"") if held.matches(table.etag) else (200, full, table.body)
                    await send({"type": "http.response.start", "status": status, "headers": [*head]})
                    await send({"type": "http.response.body", "body": body})
                    return
        await self.app(scope, receive, send)


@lru_cache(1_000)
def _heads(table: Table) -> tuple[Head, Head]:
    """The headers of 200 and of 304, as the route makes them."""
    same = IfNoneMatch(frozenset({table.etag}))
    return answer(table, False, IfNoneMatch()).raw_headers, answer(table, False, same).raw_headers


@lru_cache(1_000)
def _held(*lines: bytes) -> IfNoneMatch:
    """What a client holds; a fleet holds few different tags. The server has bounded the size of headers."""
    return IfNoneMatch.parse([line.decode("latin-1") for line in lines])
