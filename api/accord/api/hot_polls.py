"""What engines ask for all the time, without the way through the routes."""

from __future__ import annotations

import re
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from accord.learner.pair import PAIR_ID

from .etag import IfNoneMatch
from .routes.coefficients import LAST_WORDS, answer, hold
from .services import Services
from .settings import MAX_WAIT_S
from .tables import Table

Head = list[tuple[bytes, bytes]]

MAX_REMEMBERED = 128
"""Bytes of the longest list of tags that is kept parsed."""

_PATH = re.compile(rf"/v1/pairs/({PAIR_ID})/coefficients")
_QUERY = re.compile(rb"(?:wait=([0-9]{1,2}(?:\.[0-9]{1,6})?))?")


class HotPolls:
    """Middleware: answers a GET of coefficients that are in memory and current, and holds it as `wait` asks.

    Everything else passes, so this only ever says what the route would say: the same bytes and headers. It stands
    behind the guard and all other middleware.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or passes the request on."""
        if scope["type"] == "http" and scope["method"] == "GET" and not scope["root_path"]:
            path, query = _PATH.fullmatch(scope["path"]), _QUERY.fullmatch(scope["query_string"])
            if path is not None and query is not None and (wait := float(query[1] or 0.0)) <= MAX_WAIT_S:
                await self._poll(path[1], wait, scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _poll(self, pair: str, wait: float, scope: Scope, receive: Receive, send: Send) -> None:
        services: Services = scope["app"].state.services
        table = services.tables.at_hand(pair)
        if table is None:
            await self.app(scope, receive, send)
            return
        held = _held(b",".join([value for name, value in scope["headers"] if name == b"if-none-match"]))
        if wait > 0.0 and held.matches(table.etag):
            ended = await hold(services, pair, receive, held, wait)
            if ended not in LAST_WORDS:
                table = services.tables.at_hand(pair)
        if table is None:
            # It has waited already.
            await self.app({**scope, "query_string": b""}, receive, send)
            return
        full, unchanged = _heads(table)
        status, head, body = (304, unchanged, b"") if held.matches(table.etag) else (200, full, table.body)
        await send({"type": "http.response.start", "status": status, "headers": [*head]})
        await send({"type": "http.response.body", "body": body})


@lru_cache(256)
def _heads(table: Table) -> tuple[Head, Head]:
    """The headers of 200 and of 304, as the route makes them."""
    same = IfNoneMatch(frozenset({table.etag}))
    return answer(table, False, IfNoneMatch()).raw_headers, answer(table, False, same).raw_headers


def _held(line: bytes) -> IfNoneMatch:
    """What a client holds. A fleet holds few different tags, and they are short."""
    return _short(line) if len(line) <= MAX_REMEMBERED else _parsed(line)


def _parsed(line: bytes) -> IfNoneMatch:
    return IfNoneMatch.parse([line.decode("latin-1")] if line else [])


_short = lru_cache(1_000)(_parsed)
