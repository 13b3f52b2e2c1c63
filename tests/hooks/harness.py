"""Evidence, tables, and servers that lie, for the tests of the engine's side."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from accord.hooks.outbox import Identity, RoundParts
from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store
from accord.learner.wire import Expected, decode

PAIR = Pair("meta/Target-8B", "org/Draft-1B", Method.EAGLE, DraftSampling.GREEDY, 3)
KNOTS = (0.0, 2.0)
IDENTITY = Identity(PAIR.id, "host/0", "0123456789abcdef", PAIR.k, KNOTS)
DEADLINE_S = 20.0


def parts(seed: int = 0, requests: int = 4, workload: str = "code:greedy", sketch: bool = False) -> RoundParts:
    """What one decode step of some requests taught."""
    rng = np.random.default_rng(seed)
    accumulator = Accumulator(PAIR.k, SplineBasis(KNOTS), 1, requests)
    accepted = rng.integers(0, PAIR.k + 1, requests)
    rows = np.arange(requests)
    accumulator.observe(rng.normal(1, 2, (requests, PAIR.k)), np.zeros_like(rows), rows, accepted, 0 * rows + PAIR.k)
    drained = accumulator.drain_sketch() if sketch else None
    return RoundParts(0, 1, (workload,), accumulator.slopes, accumulator.intercepts, accumulator.drain(), drained)


def table(version: int, level: float = 0.1, published_ms: int | None = None) -> CoefficientTable:
    """A table for PAIR with one workload."""
    row = Coefficients([0.6, 0.0, 0.1], [level] * PAIR.k, 0.1)
    stamp = 1_700_000_000_000 + version if published_ms is None else published_ms
    return CoefficientTable(PAIR.id, version, row, {"code:greedy": row}, KNOTS, stamp)


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds


@dataclass
class Landed:
    """What a pair's stream holds, as a learner would count it."""

    labels: int = 0
    rounds: int = 0
    duplicates: int = 0


def landed(store: Store, pair: Pair = PAIR, knots: tuple[float, ...] = KNOTS) -> Landed:
    """Reads a whole stream; fails on an overlap, a gap, or a duplicate that differs."""
    last: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str, int], bytes] = {}
    total = Landed()
    for _, payload in store.read(pair.id, "0-0", 100_000):
        summary = decode(payload, Expected(pair.id, pair.k, knots))
        sender = (summary.engine, summary.boot)
        known = last.get(sender, 0)
        if summary.last_seq <= known:
            assert seen[(*sender, summary.first_seq)] == payload
            total.duplicates += 1
            continue
        assert summary.first_seq == known + 1
        last[sender] = summary.last_seq
        seen[(*sender, summary.first_seq)] = payload
        total.labels += summary.labels
        total.rounds += summary.rounds
    return total


Handler = Callable[[socket.socket, bytes], None]


class RawServer:
    """An HTTP server of the worst kind: every connection's request is read, and the handler writes what it likes."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[bytes] = []
        self.ending = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._clients: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ending.set()
        for item in [self._listener, *self._clients]:
            try:
                item.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in list(self._threads):
            thread.join(DEADLINE_S)
        self._listener.close()

    def _spawn(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.ending.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.add(client)
            self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                request = b""
                while b"\r\n\r\n" not in request:
                    chunk = client.recv(1 << 16)
                    if not chunk:
                        return
                    request += chunk
                self.requests.append(request)
                self.handler(client, request)
            except OSError:
                return
            finally:
                self._clients.discard(client)


def reply(status: str = "200 OK", body: bytes = b"", *headers: str) -> bytes:
    """A whole response that ends its connection."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def serving(payload: bytes) -> Handler:
    """A handler that always writes the same bytes."""
    return lambda client, request: client.sendall(payload)
