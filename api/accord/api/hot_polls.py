"""What engines ask for all the time, without the way through the framework.

A fleet's polls are nearly all of what a server does, and the layers that every other request passes cost more than the
answer. What such a poll needs of them is done here in one step, by the same objects: the guard's own `Auth` and table
of roles, the limits, the counters, the security headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import lru_cache

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import Auth
from .auth.table import PAIR, least_role
from .auth.tokens import Entry
from .errors import internal
from .etag import IfNoneMatch
from .metrics.requests import RequestMetrics
from .middleware import headers_fit, with_headers
from .routes.coefficients import LAST_WORDS, answer, hold
from .services import Services
from .settings import MAX_WAIT_S
from .tables import Table

ROUTE = f"{PAIR}/coefficients"
BEFORE, AFTER = ROUTE.split("{pair}")

MAX_REMEMBERED = 128
"""Bytes of the longest list of tags that is kept parsed."""

_QUERY = re.compile(rb"wait=([0-9]{1,2}(?:\.[0-9]{1,6})?)")
_UNUSUAL = (b"content-length", b"transfer-encoding", b"expect")
"""Headers of a request with a body, which nobody reads here."""


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """What answers for one table, made once and sent many times: nobody may change the messages."""

    table: Table
    tag: bytes
    full: tuple[Message, Message]
    unchanged: tuple[Message, Message]


@dataclass(slots=True, eq=False)
class _Poll:
    """A request that is answered here: what it asks for, which tags it shows, and when it came."""

    services: Services
    table: Table
    pair: str
    wait: float
    shown: bytes
    began: float


class HotPolls:
    """Stands before an application: answers a GET of coefficients that are in memory and current, and holds it as
    `wait` asks.

    Everything else passes, refusals too, so this only ever says what the whole way would say.

    Args:
        app: the whole way.
        auth: tells who calls.
        metrics: told of every request that is answered here.
        limit: pairs whose answers are kept.

    Attributes:
        services: set once the application runs.
    """

    def __init__(self, app: ASGIApp, auth: Auth, metrics: RequestMetrics, limit: int) -> None:
        self.services: Services | None = None
        self._app, self._auth, self._metrics, self._limit = app, auth, metrics, limit
        self._least = least_role("GET", ROUTE)
        self._made: dict[str, _Made] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers, or passes the request on. No coroutine of its own, whose frame every open poll would hold."""
        poll = self._poll(scope)
        return self._app(scope, receive, send) if poll is None else self._answer(poll, scope, receive, send)

    def _poll(self, scope: Scope) -> _Poll | None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope.get("root_path") or self.services is None:
            return None
        began, path = time.perf_counter(), scope["path"]
        if not path.startswith(BEFORE) or not path.endswith(AFTER):
            return None
        pair, wait = path[len(BEFORE) : -len(AFTER)], _wait(scope["query_string"])
        table = None if wait is None else self.services.tables.at_hand(pair)
        if table is None or wait is None:
            return None
        headers = scope["headers"]
        fields = dict(headers)
        # A header that comes twice is for the whole way: nobody may read another one here than the guard does.
        if len(fields) != len(headers) or not fields.keys().isdisjoint(_UNUSUAL) or not headers_fit(headers):
            return None
        caller = self._auth.identify(headers)
        if not isinstance(caller, Entry) or not caller.principal.role.covers(self._least):
            return None
        return _Poll(self.services, table, pair, wait, fields.get(b"if-none-match", b""), began)

    async def _answer(self, poll: _Poll, scope: Scope, receive: Receive, send: Send) -> None:
        made = self._answers(poll.pair, poll.table)
        same = poll.shown == made.tag or _held(poll.shown).matches(poll.table.etag)
        if same and poll.wait > 0.0:
            held = _held(poll.shown)
            try:
                ended = await hold(poll.services, poll.pair, receive, held, poll.wait)
            except Exception:
                # As the whole way does: the envelope for the client, the reason for the server's log.
                self._metrics.answered("GET", ROUTE, 500, time.perf_counter() - poll.began)
                await internal()(scope, receive, send)
                raise
            table = poll.table if ended in LAST_WORDS else poll.services.tables.at_hand(poll.pair)
            if table is None:
                # It has waited already.
                await self._app({**scope, "query_string": b""}, receive, send)
                return
            made, same = self._answers(poll.pair, table), held.matches(table.etag)
        start, body = made.unchanged if same else made.full
        self._metrics.answered("GET", ROUTE, start["status"], time.perf_counter() - poll.began)
        await send(start)
        await send(body)

    def _answers(self, pair: str, table: Table) -> _Made:
        made = self._made.get(pair)
        # By identity: after a restored backup another table may have the same version.
        if made is None or made.table is not table:
            if len(self._made) >= self._limit:
                self._made.clear()
            made = self._made[pair] = _make(table)
        return made


def _wait(query: bytes) -> float | None:
    if not query:
        return 0.0
    found = _QUERY.fullmatch(query)
    wait = None if found is None else float(found[1])
    return None if wait is None or wait > MAX_WAIT_S else wait


def _make(table: Table) -> _Made:
    full = answer(table, False, IfNoneMatch())
    unchanged = answer(table, False, IfNoneMatch(frozenset({table.etag})))
    return _Made(table, table.etag.encode("latin-1"), _messages(full), _messages(unchanged))


def _messages(response: Response) -> tuple[Message, Message]:
    headers = with_headers(response.raw_headers)
    return (
        {"type": "http.response.start", "status": response.status_code, "headers": headers},
        {"type": "http.response.body", "body": bytes(response.body)},
    )


def _held(line: bytes) -> IfNoneMatch:
    """What a client holds. A fleet holds few different tags, and they are short."""
    return _short(line) if len(line) <= MAX_REMEMBERED else _parsed(line)


def _parsed(line: bytes) -> IfNoneMatch:
    return IfNoneMatch.parse([line.decode("latin-1")] if line else [])


_short = lru_cache(1_000)(_parsed)
