"""The one table of routes and the least role that each asks for.

A route that is missing here keeps the application from starting, so nobody can forget it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.routing import compile_path
from starlette.types import Scope

from accord.learner.errors import AccordError

from .roles import Role

PAIR = "/v1/pairs/{pair}"
WORKLOAD = f"{PAIR}/workloads/{{key}}"

ANY = "*"
"""Stands for every method: of a mounted folder."""

_READS = (
    "/metrics",
    "/v1/pairs",
    "/v1/events",
    PAIR,
    f"{PAIR}/costs",
    f"{PAIR}/history",
    f"{PAIR}/audit",
    f"{PAIR}/override",
    f"{PAIR}/overrides",
    WORKLOAD,
    f"{WORKLOAD}/override",
    f"{WORKLOAD}/advice",
)
_WRITES = (
    ("PUT", f"{PAIR}/override"),
    ("DELETE", f"{PAIR}/override"),
    ("PUT", f"{WORKLOAD}/override"),
    ("DELETE", f"{WORKLOAD}/override"),
    ("POST", f"{PAIR}/rollback"),
    ("POST", f"{WORKLOAD}/rollback"),
)

LEAST: dict[tuple[str, str], Role] = {
    # Probes of whatever runs the process have no token.
    ("GET", "/livez"): Role.OPEN,
    ("GET", "/readyz"): Role.OPEN,
    # The same for everybody, and public with the source.
    ("GET", "/openapi.json"): Role.OPEN,
    # The page's own files hold no data: a browser cannot send a token with them.
    ("GET", "/"): Role.OPEN,
    ("GET", "/static/{path:path}"): Role.OPEN,
    ("GET", f"{PAIR}/coefficients"): Role.ENGINE,
    # Says no more than whose token it is.
    ("GET", "/v1/whoami"): Role.ENGINE,
    # A question, although it is a POST: nothing changes.
    ("POST", f"{WORKLOAD}/what-if"): Role.VIEWER,
    **{("GET", path): Role.VIEWER for path in _READS},
    **dict.fromkeys(_WRITES, Role.OPERATOR),
}

STREAMS = frozenset({"/v1/events"})
"""Answers without an end: they are ended when their token is taken away."""


class UndeclaredRouteError(AccordError):
    """A route that the table does not have."""


def least_role(method: str, path: str) -> Role:
    """The least role of a route.

    Raises:
        UndeclaredRouteError: for a route without an entry.
    """
    if (method, path) not in LEAST:
        raise UndeclaredRouteError(f"{method} {path} has no least role: add it to LEAST in api/auth/table.py")
    return LEAST[method, path]


def find(method: str, path: str) -> tuple[str, Role | None]:
    """Template and least role of a request; None for one that fits no route.

    >>> find("GET", "/v1/pairs/a.b/coefficients")
    ('/v1/pairs/{pair}/coefficients', <Role.ENGINE: 'engine'>)
    """
    for template, pattern, methods in _PATTERNS:
        if pattern.match(path):
            return template, methods.get(method, methods.get(ANY))
    return path, None


def route_path(scope: Scope) -> str:
    """The path by which routes are found: without the prefix under which an application may be mounted.

    >>> route_path({"path": "/accord/v1/pairs", "root_path": "/accord"}), route_path({"path": "/v1/pairs"})
    ('/v1/pairs', '/v1/pairs')
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    rest = path.removeprefix(root)
    # A prefix ends where a part of the path does: /accordion is not below /accord.
    return rest if path.startswith(root) and rest[:1] in ("", "/") else path


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path template of everything that an application answers; HEAD is answered as GET and left out."""
    return {route for item in app.routes for route in _routes(item)}


def _routes(item: Any) -> Iterator[tuple[str, str]]:
    if hasattr(item, "effective_route_contexts"):
        # Routers are included lazily by newer versions, and copied by older ones.
        for inner in item.effective_route_contexts():
            yield from _routes(getattr(inner, "starlette_route", None) or inner)
    elif hasattr(item, "path"):
        for method in (getattr(item, "methods", None) or {ANY}) - {"HEAD"}:
            yield method, item.path
    else:
        raise UndeclaredRouteError(f"{item!r:.200} does not tell its path")


def _patterns() -> list[tuple[str, re.Pattern[str], dict[str, Role]]]:
    by_path: dict[str, dict[str, Role]] = {}
    # What engines poll comes first.
    for (method, path), role in sorted(LEAST.items(), key=lambda item: item[1] is not Role.ENGINE):
        by_path.setdefault(path, {})[method] = role
    return [
        (path, compile_path(f"{path}/{{path:path}}" if ANY in methods else path)[0], methods)
        for path, methods in by_path.items()
    ]


_PATTERNS = _patterns()
