"""What waits to be sent: bounded, because the newest rounds merge, and complete, because merging loses nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accord.learner.basis import Array
from accord.learner.coefficients import MAX_WORKLOADS
from accord.learner.errors import InvalidValue, Reason, Refusal
from accord.learner.moments import Moments
from accord.learner.sketch import Sketch
from accord.learner.summary import RoundSummary


@dataclass(frozen=True)
class Identity:
    """Who sends: pair id, engine name, boot (16 hex digits, new at every start), K and knots."""

    pair: str
    engine: str
    boot: str
    k: int
    knots: tuple[float, ...]


@dataclass(frozen=True)
class RoundParts:
    """What one round taught, before it has a number; fields as in `RoundSummary`."""

    version: int
    steps: int
    workloads: tuple[str, ...]
    slopes: Array
    intercepts: Array
    moments: Moments
    sketch: Sketch | None = None

    @property
    def labels(self) -> int:
        """How many labels are summed; 0 when that cannot be said."""
        total = float(self.moments.n.sum())
        return round(total) if np.isfinite(total) else 0


@dataclass
class Tally:
    """Rounds and labels."""

    rounds: int = 0
    labels: int = 0

    def add(self, rounds: int, labels: int) -> None:
        """Counts more of them."""
        self.rounds += rounds
        self.labels += labels

    def to_dict(self) -> dict[str, int]:
        """Plain values."""
        return {"rounds": self.rounds, "labels": self.labels}


@dataclass(frozen=True)
class _Item:
    summary: RoundSummary
    since: float


class Outbox:
    """An ordered queue of summaries. One thread puts, one takes; any thread may look.

    A summary gets its sequence number when it is put, without gaps. More than `limit` unsent summaries make the newest
    two merge. The head that was taken is frozen: every retry sends the same rounds, so that one that landed twice is a
    duplicate to the learner and never an overlap.

    Args:
        identity: stamped on every summary.
        limit: how many unsent summaries may wait, at least 2.
        clock: seconds, monotonic.
    """

    def __init__(self, identity: Identity, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        if limit < 2:
            raise InvalidValue("limit", limit, "must be at least 2: a frozen head, and one that grows")
        self.identity, self.limit = identity, limit
        self._clock = clock
        self._lock = threading.Condition()
        self._items: list[_Item] = []
        self._frozen = False
        self._next = 1
        self._put, self._sent, self._merged, self._lost = Tally(), Tally(), Tally(), Tally()
        self._reasons: Counter[str] = Counter()
        self.filled = threading.Event()
        """Set by every put; whoever waits for work clears it."""

    def __len__(self) -> int:
        return len(self._items)

    def put(self, parts: RoundParts) -> RoundSummary | None:
        """Queues a round; never raises. Returns the numbered summary, or None when it had to be counted as lost."""
        labels = 0
        with self._lock:
            try:
                labels = parts.labels
                summary = self._stamp(parts)
                self._append(summary)
            except Exception as error:  # noqa: BLE001  # the engine's thread: a lost round is counted, never raised
                self._put.add(1, labels)
                self._lose(1, labels, error.reason.value if isinstance(error, Refusal) else type(error).__name__)
                return None
            self._put.add(1, labels)
            self._next += 1
        self.filled.set()
        return summary

    def refuse(self, parts: RoundParts, reason: str) -> None:
        """Counts a round as lost that cannot be queued here."""
        with self._lock:
            self._put.add(1, parts.labels)
            self._lose(1, parts.labels, reason)

    def take(self) -> RoundSummary | None:
        """Freezes and returns the head, the same one until `ack` or `drop`; None when nothing waits."""
        with self._lock:
            self._frozen = bool(self._items)
            return self._items[0].summary if self._items else None

    def ack(self) -> None:
        """The head has landed."""
        with self._lock:
            head = self._pop()
            self._sent.add(head.rounds, head.labels)

    def drop(self, reason: str) -> None:
        """The head can never be sent; its labels are counted as lost."""
        with self._lock:
            head = self._pop()
            self._lose(head.rounds, head.labels, reason)

    def wait_empty(self, timeout_s: float) -> bool:
        """Waits until nothing is unsent; False when the time is up before."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._items, timeout_s)

    def status(self) -> dict[str, Any]:
        """Counters: put, sent, merged, lost, queued (rounds and labels each), summaries, lag_s, lost_reasons.

        put = sent + lost + queued, in rounds and in labels.
        """
        with self._lock:
            queued = Tally()
            for item in self._items:
                queued.add(item.summary.rounds, item.summary.labels)
            tallies = {"put": self._put, "sent": self._sent, "merged": self._merged, "lost": self._lost}
            return {
                **{name: tally.to_dict() for name, tally in tallies.items()},
                "queued": queued.to_dict(),
                "summaries": len(self._items),
                "lag_s": round(max(self._clock() - self._items[0].since, 0.0), 3) if self._items else 0.0,
                "lost_reasons": dict(self._reasons),
            }

    def _stamp(self, parts: RoundParts) -> RoundSummary:
        _check_finite(parts)
        summary = RoundSummary(
            pair=self.identity.pair,
            engine=self.identity.engine,
            boot=self.identity.boot,
            first_seq=self._next,
            last_seq=self._next,
            version=parts.version,
            steps=parts.steps,
            k=self.identity.k,
            knots=self.identity.knots,
            workloads=parts.workloads,
            slopes=parts.slopes,
            intercepts=parts.intercepts,
            moments=parts.moments,
            sketch=parts.sketch,
        )
        shapes = Moments.shapes(len(parts.workloads), self.identity.k, summary.basis)
        for name, array in parts.moments.arrays().items():
            if array.shape != shapes[name]:
                raise Refusal(Reason.SHAPE, f"{name} has shape {array.shape}, expected {shapes[name]}")
        return summary

    def _append(self, summary: RoundSummary) -> None:
        if len(self._items) < self.limit:
            self._items.append(_Item(summary, self._clock()))
            return
        last = self._items[-1]
        merged = last.summary.merge(summary)
        if len(merged.workloads) > MAX_WORKLOADS:
            raise Refusal(Reason.WORKLOADS, f"{len(merged.workloads)} workloads; at most {MAX_WORKLOADS}")
        self._items[-1] = replace(last, summary=merged)
        self._merged.add(1, summary.labels)

    def _pop(self) -> RoundSummary:
        if not self._frozen:
            raise RuntimeError("take the head first")
        self._frozen = False
        head = self._items.pop(0).summary
        self._lock.notify_all()
        return head

    def _lose(self, rounds: int, labels: int, reason: str) -> None:
        self._lost.add(rounds, labels)
        self._reasons[reason] += rounds


def _check_finite(parts: RoundParts) -> None:
    # One NaN would poison everything that it merges with.
    arrays = [parts.slopes, parts.intercepts, *parts.moments.arrays().values()]
    if parts.sketch is not None:
        arrays += [parts.sketch.acceptance, parts.sketch.survival]
    if not all(np.isfinite(array).all() for array in arrays):
        raise Refusal(Reason.NOT_FINITE, "a round holds NaN or infinity")
