"""Counts every request, by the template of its route."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette._utils import get_route_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..auth.table import LEAST, find

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
TEMPLATES = frozenset(path for _, path in LEAST)
UNKNOWN = "unknown"
"""Stands for every path that fits no route, and for every method that no route has."""

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestMetrics:
    """How many requests there were, and how long each took until its answer began."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self._count = Counter("accord_api_requests", "Requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "accord_api_request_duration_seconds",
            "Until the answer began; a long-poll's wait is part of it",
            labels[:2],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """One request."""
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN
        template = find("GET" if method == "HEAD" else method, get_route_path(scope))[0]
        route = template if template in TEMPLATES else UNKNOWN
        # A closed set: methods, routes and statuses of this server.
        series = self._series.get((method, route, status))
        if series is None:
            series = self._count.labels(method, route, str(status)), self._seconds.labels(method, route)
            self._series[method, route, status] = series
        series[0].inc()
        series[1].observe(seconds)


class RequestMetricsMiddleware:
    """Stands outside of all other middleware, so that refusals are counted too.

    Args:
        app: what it counts for.
        metrics: where.
    """

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answered = time.perf_counter(), False

        async def watched(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start" and not answered:
                answered = True
                self.metrics.answered(scope, message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            # The answer to what nobody foresaw is made outside of this.
            if not answered:
                self.metrics.answered(scope, 500, time.perf_counter() - began)
            raise
