"""Keeps the heartbeats of a pair bounded: they are written by whoever may write them, under any name."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection

from ..logs import event
from ..sequences import FORGET_AFTER_MS
from ..store import Store
from ..store.registry import MAX_ENGINES

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 60.0
FIRST_SWEEP_S = 1.0


class Heartbeats:
    """Looks through the heartbeats of a pair, a slice at a time, once a minute.

    Dropped are those of engines that have been silent for a day (a container's name may never return), names that no
    engine can have, and whatever is longer than a heartbeat. Of more than `most`, engines whose summaries were learnt
    stay before others, and then those that were heard last.

    Args:
        store: where they are; pair_id: whose.
        most: kept.
        clock: seconds.
    """

    def __init__(
        self, store: Store, pair_id: str, most: int = MAX_ENGINES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._pair_id, self._most, self._clock = store, pair_id, most, clock
        self._next_s = clock() + FIRST_SWEEP_S
        self._cursor, self._limit_ms = "0", 0
        self._seen: dict[str, int] = {}
        self._dropped = 0

    @property
    def due(self) -> bool:
        """Whether a sweep is under way, or should begin."""
        return self._cursor != "0" or self._clock() >= self._next_s

    def go_on(self, learnt: Collection[str]) -> int:
        """Looks through one slice; returns how many heartbeats were dropped.

        Args:
            learnt: names of engines whose summaries were learnt.

        Raises:
            StoreError: when the store is away or refuses.
        """
        if self._cursor == "0":
            self._limit_ms = self._store.clock_ms(self._pair_id) - FORGET_AFTER_MS
            self._seen, self._dropped = {}, 0
        self._cursor, dropped, statuses = self._store.sweep_engines(self._pair_id, self._cursor)
        gone = []
        for name, status in statuses.items():
            seen_ms = _seen_ms(status)
            if seen_ms < self._limit_ms:
                gone.append(name)
            else:
                self._seen[name] = seen_ms
        ended = self._cursor == "0"
        if len(self._seen) > (self._most if ended else 2 * self._most):
            ranked = sorted(self._seen.items(), key=lambda item: (item[0] in learnt, item[1], item[0]), reverse=True)
            gone += [name for name, _ in ranked[self._most :]]
            self._seen = dict(ranked[: self._most])
        dropped += self._store.forget_engines(self._pair_id, gone)
        self._dropped += dropped
        if ended:
            self._next_s, self._seen = self._clock() + SWEEP_EVERY_S, {}
            if self._dropped:
                why = "silent for a day, malformed, or more than fit"
                event(log, "engines forgotten", pair=self._pair_id, count=self._dropped, reason=why)
        return dropped


def _seen_ms(status: bytes) -> int:
    """When an engine sent a heartbeat, unix milliseconds; 0 for one that does not say."""
    try:
        at = json.loads(status)["time_ms"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return at if isinstance(at, int) else 0
