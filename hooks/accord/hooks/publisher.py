"""Sends what the outbox holds, and says every few seconds how the engine is."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from accord.learner.errors import AccordError
from accord.learner.pair import Pair
from accord.learner.store import Store, StoreUnavailableError, connect
from accord.learner.summary import RoundSummary
from accord.learner.wire import MAX_WIRE_BYTES, encode

from .backoff import Backoff
from .outbox import Outbox

log = logging.getLogger(__name__)

REGISTER_EVERY_S = 30.0
"""A Redis that came back empty must learn of the pair again, also when no error told."""

LAST_CALL_S = 1.0
"""How long a thread that waits for a silent server may take to notice that it is over."""

CLOCK_OFF_MS = 2_000
"""A host whose clock is this far from the store's tells times by the store's."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0


class Publisher:
    """A daemon thread with a Redis client of its own; constructing one opens no socket.

    Whatever fails, the summary stays in the outbox and is sent again, byte for byte, after a jittered wait. Only what
    cannot be encoded is dropped, and counted.

    Args:
        pair, knots: registered before anything is sent.
        outbox: emptied in order.
        redis_url: see `accord.learner.store.connect`.
        engine: name under which heartbeats are kept.
        status: plain values for a heartbeat; called on the publisher's thread.
        heartbeat_s: seconds between heartbeats.
        open_store: makes the store; a seam for tests.
    """

    def __init__(
        self,
        pair: Pair,
        knots: tuple[float, ...],
        outbox: Outbox,
        redis_url: str,
        engine: str,
        status: Callable[[], Mapping[str, Any]],
        heartbeat_s: float = 2.0,
        open_store: Callable[[str], Store] | None = None,
    ) -> None:
        self._pair, self._knots, self._outbox = pair, knots, outbox
        self._url, self._engine = redis_url, engine
        self._status, self._heartbeat_s = status, heartbeat_s
        self._open_store = open_store or _open_store
        self._store: Store | None = None
        self._ahead_ms = 0
        self._payload: tuple[RoundSummary, bytes] | None = None
        self._registered_at = self._beat_at = float("-inf")
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""
        """Why the last try failed; empty while Redis answers."""
        self.failures = 0
        """How many tries failed since the start."""

    def start(self) -> None:
        """Starts the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="accord-publisher", daemon=True)
            self._thread.start()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything put so far has landed; False when the time is up before. Cuts a back-off short."""
        self._hurry.set()
        self._outbox.filled.set()
        running = self._thread is not None and self._thread.is_alive()
        return self._outbox.wait_empty(timeout_s if running else 0.0)

    def stop(self, timeout_s: float) -> bool:
        """Flushes, then ends the thread, all within `timeout_s`; False when something stayed unsent."""
        end = time.monotonic() + timeout_s
        empty = self.flush(timeout_s)
        self._stopping.set()
        self._hurry.set()
        self._outbox.filled.set()
        if self._thread is not None:
            self._thread.join(max(end - time.monotonic(), 0.05))
            last = time.monotonic() + LAST_CALL_S
            while self._thread.is_alive() and time.monotonic() < last:
                self._disconnect()
                self._thread.join(0.02)
        return empty

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._outbox.filled.clear()
            if self._try(self._cycle):
                idle = self._beat_at + self._heartbeat_s - time.monotonic()
                self._outbox.filled.wait(min(max(idle, 0.0), self._heartbeat_s))
            else:
                self._hurry.wait(self._backoff.next())
            self._hurry.clear()
        if not self.error:
            self._try(self._beat)
        self._close()

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # this thread must outlive whatever a server or a library does
            self._failed(error)
            return False
        if self.error:
            log.info("accord: Redis answers again")
        self.error = ""
        self._backoff.reset()
        return True

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        text = f"{type(error).__name__}: {error}"[:300]
        if not self.error:
            log.warning("accord: summaries wait for Redis (%s)", text)
        self.error = text
        # Whoever comes back may have lost everything, or be somebody else.
        self._registered_at = float("-inf")
        if not isinstance(error, StoreUnavailableError):
            self._close()

    def _cycle(self) -> None:
        # The heartbeat first: an engine whose pair cannot be registered must be seen, with the reason.
        self._beat()
        self._register()
        while (summary := self._outbox.take()) is not None and not self._stopping.is_set():
            payload = self._encode(summary)
            if payload is None:
                continue
            self._open().append(self._pair.id, payload)
            self._outbox.ack()
            self._payload = None
            self._beat()

    def _register(self) -> None:
        if time.monotonic() - self._registered_at < REGISTER_EVERY_S:
            return
        record = self._open().register(self._pair, self._knots)
        if record.knots != self._knots:
            raise KnotsDifferError(f"pair {self._pair.id} has knots {record.knots}, this engine {self._knots}")
        self._registered_at = time.monotonic()
        ahead_ms = time.time_ns() // 1_000_000 - self._open().now_ms()
        # Less says nothing: the answer has travelled, too.
        self._ahead_ms = ahead_ms if abs(ahead_ms) >= CLOCK_OFF_MS else 0

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beat_at < self._heartbeat_s and not self._stopping.is_set():
            return
        self._beat_at = now
        status = {**self._status(), "stopped": self._stopping.is_set()}
        if self._ahead_ms:
            # Whether an engine is silent is judged by the store's clock.
            status |= {name: status[name] - self._ahead_ms for name in ("time_ms", "started_ms") if name in status}
            status["clock_ahead_s"] = self._ahead_ms / 1000.0
        self._open().heartbeat(self._pair.id, self._engine, json.dumps(status, separators=(",", ":")).encode())

    def _encode(self, summary: RoundSummary) -> bytes | None:
        if self._payload is not None and self._payload[0] is summary:
            return self._payload[1]
        try:
            payload = encode(summary)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            log.warning("accord: a summary cannot be encoded: %s", error)
            self._outbox.drop("encode")
            return None
        if len(payload) > MAX_WIRE_BYTES:
            self._outbox.drop("size")
            return None
        self._payload = (summary, payload)
        return payload

    def _open(self) -> Store:
        if self._store is None:
            self._store = self._open_store(self._url)
        return self._store

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except Exception as error:  # noqa: BLE001  # a client that cannot be closed is dropped
                log.debug("closing the Redis client: %s", error)

    def _disconnect(self) -> None:
        """Wakes a thread that waits for a server which says nothing."""
        store = self._store
        if store is not None:
            try:
                store.hang_up()
            except Exception as error:  # noqa: BLE001  # best effort while shutting down
                log.debug("hanging up: %s", error)


class KnotsDifferError(AccordError):
    """The pair is registered with another basis: what this engine sends would be refused."""


def _open_store(url: str) -> Store:
    return Store(connect(url, role="engine"))
