"""Stands before all routes: who calls, and whether that role suffices."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import envelope
from ..logs import event
from .auth import Auth, Refused
from .roles import NOBODY, Principal, Role
from .table import STREAMS, find, least_role, route_path, routes_of
from .tokens import Entry

LOOK_EVERY_S = 1.0
"""How often an answer without an end looks whether its token is still in force."""

_WORDS = {
    Refused.MISSING: "a token is needed: Authorization: Bearer ...",
    Refused.MALFORMED: "the Authorization header must hold one bearer token",
    Refused.UNKNOWN: "this token is not known here",
    Refused.EXPIRED: "this token has ended",
}
# Somebody who shows nothing guesses nothing.
_GUESSES = (Refused.MALFORMED, Refused.UNKNOWN, Refused.EXPIRED)


async def _principal(request: Request) -> Principal:
    found: Principal = request.state.principal
    return found


CurrentPrincipal = Annotated[Principal, Depends(_principal)]
"""Who calls, for a route that wants to know."""


def protect(app: FastAPI, auth: Auth) -> None:
    """Puts the guard before an application; call it once all routes are there, and before other middleware is added.

    Raises:
        UndeclaredRouteError: for a route that has no least role.
    """
    for method, path in routes_of(app):
        least_role(method, path)
    app.add_middleware(Guard, auth=auth)


class Guard:
    """Middleware: answers 401 or 403 itself, and says to the route who calls.

    It stands before the body is read, so nobody without a token makes the server parse one. A request that fits no
    route passes, and becomes 404 or 405: `protect` has seen that every route is in the table.

    Args:
        app: what it guards.
        auth: tells who calls.
    """

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self.app, self.auth = app, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with its principal, or refuses it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, least = find(scope["method"], route_path(scope))
        caller = self.auth.identify(scope["headers"])
        state = scope.setdefault("state", {})
        if least is None or least is Role.OPEN:
            state["principal"] = caller.principal if isinstance(caller, Entry) else NOBODY
        elif isinstance(caller, Refused):
            await (await self._refuse(caller, scope))(scope, receive, send)
            return
        elif not caller.principal.role.covers(least):
            await _forbid(caller.principal, least)(scope, receive, send)
            return
        else:
            state["principal"] = caller.principal
            if path in STREAMS:
                receive = _until_revoked(receive, self.auth, caller)
        await self.app(scope, receive, send)

    async def _refuse(self, why: Refused, scope: Scope) -> JSONResponse:
        self.auth.refusals[why] += 1
        if why is Refused.NOT_LOCAL:
            words = "without tokens this server answers under this machine's own names only, such as localhost"
            return envelope(403, "forbidden", words, field="host", value=HTTPConnection(scope).headers.get("host"))
        if why in _GUESSES:
            await self._slow(why, (scope.get("client") or ("unknown",))[0])
        challenge = 'Bearer realm="accord"'
        if why is not Refused.MISSING:
            challenge += ', error="invalid_token"'
        return envelope(401, "unauthenticated", _WORDS[why], headers={"www-authenticate": challenge})

    async def _slow(self, why: Refused, address: str) -> None:
        throttle = self.auth.throttle
        seconds = throttle.failed(address)
        count = throttle.to_say(address)
        if count:
            event("token refused", level=logging.WARNING, client=address, reason=why.value, refused=count)
        if seconds > 0:
            throttle.waiting += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                throttle.waiting -= 1


def _forbid(principal: Principal, least: Role) -> JSONResponse:
    challenge = f'Bearer realm="accord", error="insufficient_scope", scope="{least}"'
    words = f"this token has the role {principal.role}, and this needs {least}"
    return envelope(403, "forbidden", words, headers={"www-authenticate": challenge})


def _until_revoked(receive: Receive, auth: Auth, caller: Entry) -> Receive:
    """The request's channel, on which a disconnect arrives when the token is not in force any more."""
    pending: asyncio.Task[Message] | None = None

    async def watched() -> Message:
        nonlocal pending
        if pending is None:
            pending = asyncio.ensure_future(receive())
        try:
            while True:
                done, _ = await asyncio.wait({pending}, timeout=LOOK_EVERY_S)
                if done:
                    message, pending = pending.result(), None
                    return message
                if not auth.holds(caller):
                    return {"type": "http.disconnect"}
        except asyncio.CancelledError:
            if pending is not None:
                pending.cancel()
                pending = None
            raise

    return watched
