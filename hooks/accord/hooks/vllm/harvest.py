"""From the device's sums to what an agent is given."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..agent import Agent
from ..outbox import RoundParts
from .estimator import AcceptanceEstimator, Drained


class Note(NamedTuple):
    """What must be remembered of a round until its sums have landed.

    Attributes:
        version: of the coefficients that it was summed at.
        steps: how long it was.
        keys: the workload of every slot.
    """

    version: int
    steps: int
    keys: tuple[str | None, ...]


class Harvest:
    """Drains an estimator, and hands rounds over when their copies have landed; never waits.

    Attributes:
        pending: rounds that are on their way.
        handed: rounds that an agent was given.
        seen: workloads that ever taught something; replaced, never changed.
    """

    def __init__(self, estimator: AcceptanceEstimator) -> None:
        self._estimator = estimator
        self._sketch_rows = np.zeros(estimator.layout.workloads, dtype=np.bool_)
        self.pending = self.handed = 0
        self.seen: frozenset[str] = frozenset()

    def drain(self, with_sketch: bool, note: Note | None) -> bool:
        """Sends the sums on their way; without a note they will be thrown away. False while two others still are."""
        if not self._estimator.drain(with_sketch, note):
            return False
        self.pending += 1
        return True

    def collect(self, agent: Agent | None) -> None:
        """Hands over the oldest round, if it has landed."""
        drained = self._estimator.collect()
        if drained is None:
            return
        self.pending -= 1
        if drained.note is None or agent is None:
            return
        parts = self._parts(drained)
        if parts is not None:
            agent.put(parts)
            self.handed += 1

    def _parts(self, drained: Drained) -> RoundParts | None:
        note: Note = drained.note
        labelled = drained.moments.n.any(axis=1)
        self._sketch_rows |= labelled
        used = self._sketch_rows if drained.sketch is not None else labelled
        rows = np.flatnonzero(used)
        if drained.sketch is not None:
            self._sketch_rows = np.zeros_like(self._sketch_rows)
        if not len(rows):
            return None
        names = tuple(str(note.keys[row]) for row in rows)
        self.seen |= frozenset(names)
        return RoundParts(
            version=note.version,
            steps=note.steps,
            workloads=names,
            slopes=drained.slopes[rows],
            intercepts=drained.intercepts[rows],
            moments=drained.moments.take(rows),
            sketch=drained.sketch.take(rows) if drained.sketch is not None else None,
        )
