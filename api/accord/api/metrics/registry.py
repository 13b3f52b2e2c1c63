"""The api's metrics, one registry an application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ..auth.auth import Auth, Refused
from ..tables import Table
from .families import FleetCollector
from .fleet_cache import FleetCache
from .requests import RequestMetrics

if TYPE_CHECKING:
    from ..services import Services

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_LATENCY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Everything that is scraped from one application.

    Args:
        auth: whose refusals are counted.

    Attributes:
        registry: this application's own.
        requests: told of every request.
    """

    def __init__(self, auth: Auth) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry)
        self._fleet = FleetCollector()
        self._cache: FleetCache | None = None
        # One at a time: whoever asks more often waits, and takes no more of the processor.
        self._rendering = asyncio.Lock()
        self._gauges = {
            name: Gauge(f"accord_api_{name}", text, registry=self.registry)
            for name, text in (
                ("waiters", "Open long-polls"),
                ("waiters_limit", "Long-polls above this are answered at once"),
                ("streams", "Open event streams"),
                ("tables", "Tables in memory"),
                ("tables_stale", "Tables in memory that may not be the ones in force"),
                ("store_up", "1 while the store answers and announces its changes, else 0"),
            )
        }
        self._latency = Histogram(
            "accord_api_publish_to_read_seconds",
            "From a publication, by the store's clock, until it was read here for who waited, by this machine's",
            registry=self.registry,
            buckets=_LATENCY,
        )
        info = Gauge("accord_api_build_info", "1; the version is a label", ["version"], registry=self.registry)
        info.labels(version("accord")).set(1)
        self.registry.register(self._fleet)
        self.registry.register(_Refusals(auth))
        ProcessCollector(registry=self.registry)

    def attach(self, services: Services, cache: FleetCache) -> None:
        """What runs now, and is looked at by every scrape."""
        self._cache = cache
        waiters, streams, tables, subscriber = services.waiters, services.streams, services.tables, services.subscriber
        self._gauges["waiters"].set_function(lambda: waiters.count)
        self._gauges["waiters_limit"].set(waiters.limit)
        self._gauges["streams"].set_function(lambda: streams.count)
        self._gauges["tables"].set_function(lambda: len(tables))
        self._gauges["tables_stale"].set_function(lambda: tables.stale)
        self._gauges["store_up"].set_function(lambda: float(subscriber.alive))

    def table_read(self, before: Table | None, table: Table) -> None:
        """A table came from the store; only a newer one than that before says how long that took."""
        if before is not None and table.version > before.version:
            self._latency.observe(max(0.0, time.time() - table.published_ms / 1000.0))

    async def scrape(self) -> bytes:
        """The text that Prometheus reads; never waits long for the store, and is made off the event loop."""
        found = await self._cache.get() if self._cache is not None else None
        async with self._rendering:
            self._fleet.snapshot = found
            self._fleet.age_s = 0.0 if found is None else asyncio.get_running_loop().time() - found.read_at
            return await asyncio.to_thread(generate_latest, self.registry)


class _Refusals(Collector):
    """How often somebody was not let in."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth

    def collect(self) -> Iterable[Metric]:
        """One family."""
        family = CounterMetricFamily("accord_api_auth_refusals", "Requests without a usable token", labels=["reason"])
        for reason in Refused:
            family.add_metric([reason.value], self._auth.refusals[reason])
        yield family
