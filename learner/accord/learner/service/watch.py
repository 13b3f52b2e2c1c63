"""What a learner tells of its work: to its log and to its metrics, and to nobody who could stop it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..counters import Counters
from ..logs import event

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """One publication as a watcher sees it.

    Attributes:
        version: of the table; cause: why, one word.
        latency_s: from the entry that made it due to the commit, by the store's clock; None when it cannot be told.
        moved, held: how many workloads changed, and how many the guard kept back.
    """

    version: int
    cause: str
    latency_s: float | None
    moved: int = 0
    held: int = 0


@dataclass(frozen=True)
class Step:
    """One committed step of a pair.

    Attributes:
        pair: its id.
        before, after: the pair's counters.
        published: oldest first.
        held: workload -> why the guard keeps its row, for those that it did not keep before.
        alarms: history items of the drift alarms.
        commit_s, total_s: seconds of the commit alone, and of the whole step.
    """

    pair: str
    before: Counters
    after: Counters
    published: Sequence[Publication] = ()
    held: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    alarms: Sequence[Mapping[str, Any]] = ()
    commit_s: float = 0.0
    total_s: float = 0.0


class Watcher:
    """Told of every change, on the learning thread: a method must be quick and must not wait. Here they do nothing."""

    def store_reached(self) -> None:
        """A pass over the pairs went well, for the first time or after the store was away."""

    def store_lost(self, reason: str) -> None:
        """The store is away: told once."""

    def passed(self) -> None:
        """A pass over the pairs ended, well or not."""

    def pair_taken(self, pair: str, fence: int, version: int, workloads: int) -> None:
        """A lease was taken and the pair's state loaded."""

    def store_rewound(self, pair: str, committed: str, found: str) -> None:
        """A pair's state is older than what the store had acknowledged: the watermarks that it had, and has."""

    def pair_given_back(self, pair: str) -> None:
        """A lease was given back."""

    def pair_dropped(self, pair: str, reason: str) -> None:
        """A lease is lost, or the last commit unknown."""

    def pair_failed(self, pair: str, reason: str) -> None:
        """A pair cannot be learnt; called while the exception is handled."""

    def commit_failed(self, pair: str, reason: str) -> None:
        """A commit was refused (`fence`, `watermark`, `version`, `overrides`), or nobody knows (`unavailable`)."""

    def stepped(self, step: Step) -> None:
        """A step was committed."""

    def waiting(self, pair: str, entries: int, seconds: float) -> None:
        """What waits behind a pair's watermark, and for how long the oldest of it has waited."""


class Watchers(Watcher):
    """Tells several; what one of them raises is logged and goes no further, for learning must not depend on it."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def store_reached(self) -> None:
        """To all."""
        self._tell("store_reached")

    def store_lost(self, reason: str) -> None:
        """To all."""
        self._tell("store_lost", reason)

    def passed(self) -> None:
        """To all."""
        self._tell("passed")

    def pair_taken(self, pair: str, fence: int, version: int, workloads: int) -> None:
        """To all."""
        self._tell("pair_taken", pair, fence, version, workloads)

    def store_rewound(self, pair: str, committed: str, found: str) -> None:
        """To all."""
        self._tell("store_rewound", pair, committed, found)

    def pair_given_back(self, pair: str) -> None:
        """To all."""
        self._tell("pair_given_back", pair)

    def pair_dropped(self, pair: str, reason: str) -> None:
        """To all."""
        self._tell("pair_dropped", pair, reason)

    def pair_failed(self, pair: str, reason: str) -> None:
        """To all."""
        self._tell("pair_failed", pair, reason)

    def commit_failed(self, pair: str, reason: str) -> None:
        """To all."""
        self._tell("commit_failed", pair, reason)

    def stepped(self, step: Step) -> None:
        """To all."""
        self._tell("stepped", step)

    def waiting(self, pair: str, entries: int, seconds: float) -> None:
        """To all."""
        self._tell("waiting", pair, entries, seconds)

    def _tell(self, what: str, *values: object) -> None:
        for watcher in self.watchers:
            try:
                getattr(watcher, what)(*values)
            except Exception:  # noqa: BLE001  # whoever watches must not end the work
                event(log, "watcher failed", level=logging.ERROR, error=True, told=what)
