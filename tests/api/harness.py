"""A running api for tests, and how a learner would publish."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any, Self

import httpx
from tests.waiting import until

from accord.api import Settings, create_app
from accord.api.server import Server, address, bind
from accord.api.services import Services
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Commit, Publication, Store

PAIR = Pair("meta/Target-8B", "org/Draft-1B", Method.EAGLE, DraftSampling.GREEDY, 3)
KNOTS = (0.0, 2.0)
DEADLINE_S = 20.0


class RunningApi:
    """The real server in a thread, on a free port; with TLS where the settings name a certificate."""

    def __init__(self, settings: Settings) -> None:
        self.app = create_app(settings)
        self._listening = threading.Event()
        tls = (settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        self._server = Server(self.app, self._listening.set, tls)
        self._socket = bind("127.0.0.1", 0)
        self.url = address(self._socket, tls is not None)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._socket])), name="api")

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(DEADLINE_S):
            self.stop()
            raise TimeoutError("the api does not listen")
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self.stop()

    @property
    def services(self) -> Services:
        """What the routes share."""
        services: Services = self.app.state.services
        return services

    def stop(self) -> None:
        """What SIGTERM does."""
        self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def get(self, path: str, etag: str | None = None, **query: Any) -> httpx.Response:
        """One GET."""
        return self.client.get(path, params=query, headers={} if etag is None else {"If-None-Match": etag})

    def ready(self) -> Self:
        """Returns once the change feed is alive."""
        until(lambda: self.services.subscriber.alive)
        return self


class Poll:
    """A GET in a thread of its own."""

    def __init__(self, api: RunningApi, path: str, etag: str, wait: float) -> None:
        self.answer: httpx.Response | None = None
        self.seconds = 0.0
        self._call = (f"{api.url}{path}", etag, wait)
        self._thread = threading.Thread(target=self._run, name="poll")
        self._thread.start()

    def _run(self) -> None:
        url, etag, wait = self._call
        begin = time.monotonic()
        self.answer = httpx.get(url, params={"wait": wait}, headers={"If-None-Match": etag}, timeout=wait + 10)
        self.seconds = time.monotonic() - begin

    def result(self) -> httpx.Response:
        """The answer."""
        self._thread.join(90)
        assert self.answer is not None
        return self.answer


class Publisher:
    """Commits as the owner of the pair, through the real store."""

    def __init__(
        self, store: Store, pair: Pair = PAIR, knots: tuple[float, ...] = KNOTS, *, registered: bool = False
    ) -> None:
        self.store, self.pair, self.knots = store, pair, knots
        if not registered:
            store.register(pair, knots)
        self.version = 0
        self._owner = f"test-{time.monotonic_ns()}"

    def table(self, version: int, **workloads: float) -> CoefficientTable:
        """A table whose rows differ by their first intercept."""
        slopes = [0.5] + [0.0] * len(self.knots)
        rows = {
            key.replace("_", ":"): Coefficients(slopes, [level] * self.pair.k, 0.1) for key, level in workloads.items()
        }
        return CoefficientTable(
            self.pair.id, version, Coefficients(slopes, [-0.3] * self.pair.k), rows, self.knots, 1_700_000_000_000
        )

    def publish(self, body: bytes | None = None, **workloads: float) -> CoefficientTable:
        """The next version."""
        self.version += 1
        table = self.table(self.version, **(workloads or {"code_greedy": 0.4}))
        publication = Publication(self.version, table.to_json(), b"{}", table.published_ms)
        lease = self.store.acquire(self.pair.id, self._owner, 60_000)
        assert lease is not None
        mark = self.store.load(self.pair.id).watermark
        self.store.commit(lease, Commit(mark, mark, body, b"", b"", self.version, [publication]))
        return table
