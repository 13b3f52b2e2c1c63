"""Counts every request, by the template of its route."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..auth.table import LEAST, find, route_path

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
TEMPLATES = frozenset(path for _, path in LEAST)
UNKNOWN = "unknown"
"""Stands for every path that fits no route, and for every method that no route has."""

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LIMITS = (*map(floatToGoString, _BUCKETS), "+Inf")


class RequestMetrics(Collector):
    """How many requests there were, and how long each took until its answer began.

    Counted on the event loop in plain numbers: the client library's own, which lock for threads that do not exist here,
    cost a poll as much as all the rest of its answer. A scrape reads them from its thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[tuple[str, str], _Times] = {}
        registry.register(self)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request.

        Args:
            method, route: as the API knows them, or UNKNOWN: a closed set.
            status: of the answer.
            seconds: until it began.
        """
        self._counts[method, route, status] += 1
        times = self._times.get((method, route))
        if times is None:
            times = self._times[method, route] = _Times()
        times.total += seconds
        # A bucket holds what is as long as its bound.
        times.buckets[bisect_left(_BUCKETS, seconds)] += 1

    def collect(self) -> Iterable[Metric]:
        """Two families."""
        counts = CounterMetricFamily("accord_api_requests", "Requests answered", labels=("method", "route", "status"))
        for (method, route, status), count in list(self._counts.items()):
            counts.add_metric((method, route, str(status)), count)
        yield counts
        about = "Until the answer began; a long-poll's wait is part of it"
        seconds = HistogramMetricFamily("accord_api_request_duration_seconds", about, labels=("method", "route"))
        for labels, times in list(self._times.items()):
            sums = accumulate(list(times.buckets))
            seconds.add_metric(labels, list(zip(_LIMITS, sums, strict=True)), times.total)
        yield seconds


class _Times:
    """Requests by how long they took: one bucket for each bound, one for what took longer, and seconds in all."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * len(_LIMITS)
        self.total = 0.0


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
                self.metrics.answered(*_route(scope), message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            # The answer to what nobody foresaw is made outside of this.
            if not answered:
                self.metrics.answered(*_route(scope), 500, time.perf_counter() - began)
            raise


def _route(scope: Scope) -> tuple[str, str]:
    method = scope["method"] if scope["method"] in METHODS else UNKNOWN
    template = find("GET" if method == "HEAD" else method, route_path(scope))[0]
    return method, template if template in TEMPLATES else UNKNOWN
