"""The engine's agent: evidence out, coefficients in, all of it behind calls that return at once."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accord.learner.coefficients import CoefficientTable
from accord.learner.errors import Refusal
from accord.learner.pair import Pair

from .credentials import Credentials
from .fitter import Fitter
from .judge import Judge
from .outbox import Identity, Outbox, RoundParts
from .publisher import Publisher
from .puller import Puller
from .settings import VARIABLES, AgentSettings, Mode
from .standing import Standing, State

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Applied:
    """What is in force from a round boundary on.

    Attributes:
        state: where the coefficients come from; `OBSERVE` asks the engine not to act on its predictions.
        version: of the table. In state LOCAL it is the version of the last served table, 0 when there was none: own
            refits have no versions, the state tells them apart.
        table: coefficients; the same object as at the boundary before when nothing changed.
    """

    state: State
    version: int
    table: CoefficientTable


class Agent:
    """Owns the threads of one engine process for one pair.

    `put` and `boundary` are for the engine's thread: they neither wait nor raise, and log a single line at most.
    Constructing an agent opens no socket and starts no thread.

    Args:
        pair: whose acceptance this engine measures.
        settings: see `AgentSettings`.
        clock: seconds, monotonic; a seam for tests.

    Raises:
        InvalidValue: for a bootstrap file that cannot be used.
    """

    def __init__(self, pair: Pair, settings: AgentSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.pair, self.settings = pair, settings
        self.boot = secrets.token_hex(8)
        self._pid, self._told_of_fork = os.getpid(), False
        self._clock = clock
        self._judge = Judge(pair.id, pair.k, settings.knots)
        self._outbox = Outbox(
            Identity(pair.id, settings.engine, self.boot, pair.k, settings.knots), settings.queue_rounds, clock
        )
        self._mailbox: deque[CoefficientTable] = deque(maxlen=1)
        self._served = self._bootstrap() or CoefficientTable.cold(pair.id, pair.k, settings.knots)
        self._digests: deque[tuple[CoefficientTable, str]] = deque(maxlen=1)
        self._refusals: Counter[str] = Counter()
        self._nack: dict[str, object] | None = None
        self._errors: Counter[str] = Counter()
        self._started_ms = _now_ms()
        self._logged: tuple[State, str] | None = None
        self._log_lock = threading.Lock()
        self._publisher = self._make_publisher()
        self._puller = self._make_puller()
        self._standing = Standing(
            settings.mode,
            self._puller is not None,
            clock(),
            settings.local_after_s,
            self._puller.patience_s if self._puller is not None else 0.0,
        )
        self._fitter = self._make_fitter()
        self.applied = Applied(self._standing.state(clock())[0], self._served.version, self._served)

    def start(self) -> None:
        """Starts the threads; a second call does nothing."""
        if self._fitter is not None:
            self._fitter.offer(self._served)
        for part in (self._publisher, self._puller, self._fitter):
            if part is not None:
                part.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Sends what waits and ends the threads, within about `timeout_s`; False when something stayed unsent."""
        end = time.monotonic() + timeout_s
        for part in (self._fitter, self._puller):
            if part is not None:
                part.stop(timeout_s / 4.0)
        # The publisher goes last, because its last heartbeat says how everything ended.
        if self._publisher is not None and not self._publisher.stop(max(end - time.monotonic(), 0.1)):
            log.warning("accord: stopped with unsent evidence: %s", self._outbox.status()["queued"])
        return len(self._outbox) == 0

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything put so far has landed; False when the time is up before. Not for the decode loop."""
        return self._publisher.flush(timeout_s) if self._publisher is not None else len(self._outbox) == 0

    def put(self, parts: RoundParts) -> bool:
        """Queues what a round taught. False when it had to be counted as lost; the status says why."""
        try:
            if os.getpid() != self._pid:
                return self._forked(parts)
            summary = self._outbox.put(parts)
            if summary is not None and self._fitter is not None:
                self._fitter.offer(summary)
        except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
            self._errors[f"put: {type(error).__name__}"] += 1
            return False
        return summary is not None

    def _forked(self, parts: RoundParts) -> bool:
        """A process that was forked off has no threads of ours, and what it would send has its parent's numbers."""
        if not self._told_of_fork:
            self._told_of_fork = True
            log.warning(
                "accord: process %d was forked from engine %s (%d): what it measures is lost; start an agent in it",
                os.getpid(), self.settings.engine, self._pid,
            )  # fmt: skip
        self._outbox.refuse(parts, "forked")
        return False

    def boundary(self) -> Applied:
        """Takes what is new, and returns what is in force from now on."""
        try:
            if self._mailbox:
                self._served = self._mailbox.pop()
            state, _ = self._standing.state(self._clock())
            table = self._table(state)
            self.applied = Applied(state, table.version, table)
        except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
            self._errors[f"boundary: {type(error).__name__}"] += 1
        return self.applied

    def state(self) -> tuple[State, str]:
        """State and reason, now."""
        return self._standing.state(self._clock())

    def status(self) -> dict[str, Any]:
        """Plain values for a heartbeat or a test; from any thread but the engine's, which it would slow."""
        state, reason = self.state()
        self._log_change(state, reason)
        outbox = self._outbox.status()
        contact = self._standing.contact
        return {
            "schema": 1,
            "engine": self.settings.engine,
            "pair": self.pair.id,
            "boot": self.boot,
            "accord": _VERSION,
            "mode": self.settings.mode.value,
            "state": state.value,
            "reason": reason,
            "version": self.applied.version,
            "digest": self._digest(self.applied.table),
            "applied": self.applied.state.value,
            "labels": {name: outbox[name]["labels"] for name in _TALLIES},
            "rounds": {name: outbox[name]["rounds"] for name in _TALLIES},
            "lost_reasons": outbox["lost_reasons"],
            "lag_s": outbox["lag_s"],
            "nack": self._nack,
            "refusals": dict(self._refusals),
            "errors": dict(self._errors),
            "publisher_error": self._publisher.error if self._publisher is not None else "not configured",
            "silent_s": None if contact.silent_since is None else round(self._clock() - contact.silent_since, 1),
            "local_refits": self._fitter.refits if self._fitter is not None else 0,
            "local_failures": self._fitter.failures if self._fitter is not None else 0,
            "started_ms": self._started_ms,
            "time_ms": _now_ms(),
        }

    # What the puller reports, on its thread.

    def on_table(self, table: CoefficientTable) -> None:
        """A good table: in force from the next round boundary on."""
        self._nack = None
        self._mailbox.append(table)
        if self._fitter is not None:
            self._fitter.offer(table)

    def on_answer(self, now: float) -> None:
        """The service answers."""
        self._standing.answered(now)
        self._log_change(*self.state())

    def on_failure(self, now: float, since: float, reason: str) -> None:
        """The service does not."""
        self._standing.failed(now, since, reason)
        self._log_change(*self.state())

    def on_refusal(self, refusal: Refusal) -> None:
        """The service sent what cannot be verified: the last good table stays, and the heartbeat says why."""
        self._refusals[refusal.reason.value] += 1
        self._nack = {"reason": refusal.reason.value, "detail": refusal.detail[:200], "time_ms": _now_ms()}

    def _table(self, state: State) -> CoefficientTable:
        if state is not State.LOCAL:
            return self._served
        own = self._fitter.table if self._fitter is not None else None
        # Until the first own refit is there, whatever was in force stays.
        return own if own is not None else self.applied.table

    def _wants_own(self) -> bool:
        state, reason = self.state()
        self._log_change(state, reason)
        return state is State.LOCAL

    def _make_publisher(self) -> Publisher | None:
        if self.settings.redis_url is None:
            return None
        return Publisher(
            self.pair,
            self.settings.knots,
            self._outbox,
            self.settings.redis_url,
            self.settings.engine,
            self.status,
            self.settings.heartbeat_s,
        )

    def _make_puller(self) -> Puller | None:
        settings = self.settings
        if settings.api_url is None or settings.mode in (Mode.LOCAL, Mode.FROZEN):
            return None
        return Puller(
            settings.api_url,
            Credentials.of(settings),
            settings.engine,
            self._judge,
            self,
            settings.poll_wait_s,
            self._clock,
        )

    def _make_fitter(self) -> Fitter | None:
        if self.settings.mode in (Mode.OBSERVE, Mode.FROZEN):
            return None
        return Fitter(self.pair.id, self.pair.k, self.settings.knots, self._wants_own, self._clock)

    def _bootstrap(self) -> CoefficientTable | None:
        path = self.settings.bootstrap
        return None if path is None else self._judge.load(VARIABLES["bootstrap"], path)

    def _digest(self, table: CoefficientTable) -> str:
        if not self._digests or self._digests[0][0] is not table:
            self._digests.append((table, table.digest))
        return self._digests[0][1]

    def _log_change(self, state: State, reason: str) -> None:
        with self._log_lock:
            before, self._logged = self._logged, (state, reason)
        if before is None or before[0] is not state:
            log.info("accord: engine %s is %s: %s", self.settings.engine, state.value, reason)


_TALLIES = ("put", "sent", "merged", "lost", "queued")


def _version() -> str:
    try:
        return importlib.metadata.version("accord")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


_VERSION = _version()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
