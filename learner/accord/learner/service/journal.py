"""The learner's log: one line for each change of what it holds, knows or serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ..counters import Counters
from ..log_throttle import LogThrottle
from ..logs import event
from .watch import Step, Watcher

log = logging.getLogger("accord.learner")


class Journal(Watcher):
    """Writes the log.

    Args:
        store: the store's address without secrets.
    """

    def __init__(self, store: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._throttle = store, LogThrottle(clock)

    def store_reached(self) -> None:
        """One line."""
        event(log, "store reached", store=self._store)

    def store_lost(self, reason: str) -> None:
        """One line."""
        event(log, "store lost", level=logging.WARNING, store=self._store, reason=reason)

    def pair_taken(self, pair: str, fence: int, version: int, workloads: int) -> None:
        """One line."""
        event(log, "pair taken", pair=pair, fence=fence, version=version, workloads=workloads)

    def store_rewound(self, pair: str, committed: str, found: str) -> None:
        """One line."""
        event(log, "store went back", level=logging.WARNING, pair=pair, committed=committed, found=found)

    def pair_given_back(self, pair: str) -> None:
        """One line."""
        event(log, "pair given back", pair=pair)

    def pair_dropped(self, pair: str, reason: str) -> None:
        """One line."""
        event(log, "pair dropped", level=logging.WARNING, pair=pair, reason=reason)

    def pair_failed(self, pair: str, reason: str) -> None:
        """One line, with the traceback of what nobody foresaw."""
        event(log, "cannot learn", level=logging.ERROR, error=not reason, pair=pair, reason=reason or "unforeseen")

    def stepped(self, step: Step) -> None:
        """A line for each publication, group of alarms, kind of refusal, and workload that the guard begins to hold."""
        self._alarms(step)
        for item in step.published:
            found: dict[str, Any] = {
                "version": item.version,
                "cause": item.cause,
                "moved": item.moved,
                "held": item.held,
            }
            event(log, "published", pair=step.pair, **found)
        for reason, number in grown(step.before.refused, step.after.refused).items():
            if count := self._throttle.count((step.pair, "refused", reason), number):
                why = _refusal(step.after, reason)
                event(log, "refused", level=logging.WARNING, pair=step.pair, count=count, **why)
        for key, held in step.held.items():
            if count := self._throttle.count((step.pair, "held", key)):
                event(log, "guard holds", pair=step.pair, workload=key, count=count, **dict[str, Any](held))

    def _alarms(self, step: Step) -> None:
        groups: dict[tuple[str, int], list[str]] = {}
        for item in step.alarms:
            groups.setdefault((str(item["detector"]), int(item["at_ms"])), []).append(str(item["workload"]))
        for (detector, at_ms), workloads in groups.items():
            found: dict[str, Any] = {"detector": detector, "at_ms": at_ms, "workloads": workloads}
            event(log, "drift", level=logging.WARNING, pair=step.pair, **found)


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What came to counts by kind, only what grew.

    >>> grown({"a": 1}, {"a": 1, "b": 2})
    {'b': 2}
    """
    return {kind: count - before.get(kind, 0) for kind, count in after.items() if count > before.get(kind, 0)}


def _refusal(counters: Counters, reason: str) -> dict[str, Any]:
    last = counters.last_refusal
    same = last.get("reason") == reason
    return {"reason": reason} | ({"detail": last["detail"], "entry": last["entry"]} if same else {})
