"""The engine's side as one object, without torch: what a plugin does on the device, done with NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.learner.accumulator import Accumulator
from accord.learner.basis import Array, SplineBasis
from accord.learner.coefficients import CoefficientTable
from accord.learner.errors import InvalidValue
from accord.learner.request_effect import Index

from .agent import Agent, Applied
from .outbox import RoundParts
from .rounds import RoundSchedule
from .slots import RequestSlots, WorkloadSlots

Texts = Sequence[str]


class EngineSide:
    """Accumulates decode steps, and at every round boundary hands over what they taught and applies what is new.

    `step`, `predict` and `finish` are for the engine's thread and never raise: what goes wrong is counted, and that
    step teaches nothing.

    Args:
        agent: already constructed, started by the caller; gives pair, knots and settings.
        workloads, requests: rows for workloads and for live requests.

    Attributes:
        applied: what is in force.
        steps, labels: counted since the start.
        errors: kinds of exception that were swallowed.
    """

    def __init__(self, agent: Agent, workloads: int = 32, requests: int = 256) -> None:
        self._agent = agent
        self._k = agent.pair.k
        self._schedule = RoundSchedule(agent.settings.round_steps)
        self._accumulator = Accumulator(self._k, SplineBasis(agent.settings.knots), workloads, requests)
        self._workloads = WorkloadSlots(workloads)
        self._requests = RequestSlots(requests)
        self._round_steps = 0
        self._rounds = 0
        self._sketch_rows = np.zeros(workloads, dtype=np.bool_)
        self.applied: Applied = agent.applied
        self._in_force = self.applied.table
        self._known: list[str | None] = [None] * workloads
        self._apply(self._in_force)
        self.steps = 0
        self.labels = 0
        self.errors: Counter[str] = Counter()

    def predict(self, features: npt.ArrayLike, keys: Texts, requests: Sequence[Hashable]) -> Array:
        """P(accept) [B, K] for features [B, K] of requests [B] of workloads [B]; all ones if it fails."""
        try:
            slots, rows = self._rows(keys, requests)
            return self._accumulator.predict(features, slots, rows)
        except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
            self.errors[f"predict: {type(error).__name__}"] += 1
            return np.ones((len(keys), self._k))

    def step(
        self,
        features: npt.ArrayLike,
        keys: Texts,
        requests: Sequence[Hashable],
        accepted: npt.ArrayLike,
        admitted: npt.ArrayLike,
    ) -> None:
        """Adds one decode step.

        Args:
            features: [B, K] logit(q_max) of each draft; a row with NaN teaches nothing.
            keys: [B] workload keys; requests: [B] ids, each once.
            accepted: [B] accepted drafts; admitted: [B] verified drafts, accepted <= admitted <= K.
        """
        try:
            self._observe(features, keys, requests, accepted, admitted)
        except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
            self.errors[f"step: {type(error).__name__}"] += 1
        # A step counts whatever became of it: rounds must end at the same step on every rank.
        self.steps += 1
        self._round_steps += 1
        if self._schedule.closes(self.steps):
            try:
                self._boundary()
            except Exception as error:  # noqa: BLE001  # as above
                self.errors[f"boundary: {type(error).__name__}"] += 1

    def finish(self, requests: Iterable[Hashable]) -> None:
        """These requests are over; their rows are free."""
        try:
            self._requests.free(requests)
        except Exception as error:  # noqa: BLE001  # as above
            self.errors[f"finish: {type(error).__name__}"] += 1

    def close(self) -> None:
        """Hands over the round that is still open, and the sketch. For a shutdown, before the agent is stopped."""
        try:
            if self._round_steps or self._sketch_rows.any():
                self._boundary(last=True)
        except Exception as error:  # noqa: BLE001  # as above
            self.errors[f"close: {type(error).__name__}"] += 1

    def status(self) -> dict[str, Any]:
        """The agent's status and the engine's own counters."""
        own = {"steps": self.steps, "observed_labels": self.labels, "engine_errors": dict(self.errors)}
        return {**self._agent.status(), **own}

    def _rows(self, keys: Texts, requests: Sequence[Hashable]) -> tuple[Index, Index]:
        slots = self._workloads.rows(keys)
        rows, fresh = self._requests.rows(requests)
        if fresh:
            self._accumulator.effects.reset(fresh)
        if self._known != self._workloads.keys:
            self._apply(self._in_force)
        return slots, rows

    def _observe(
        self,
        features: npt.ArrayLike,
        keys: Texts,
        requests: Sequence[Hashable],
        accepted: npt.ArrayLike,
        admitted: npt.ArrayLike,
    ) -> None:
        f = np.asarray(features, dtype=np.float64)
        taken, shown = np.asarray(accepted, dtype=np.int64), np.asarray(admitted, dtype=np.int64)
        shape = (len(keys), self._k)
        if f.shape != shape or taken.shape != shape[:1] or shown.shape != shape[:1] or len(requests) != len(keys):
            raise InvalidValue("features", f.shape, f"must fit {len(keys)} keys and K = {self._k}")
        if np.any(taken < 0) or np.any(taken > shown) or np.any(shown > self._k):
            raise InvalidValue("accepted", taken.tolist(), "must satisfy 0 <= accepted <= admitted <= K")
        unusable: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(f), axis=1)
        if unusable.any():
            self.errors["step: NaN in features"] += 1
            f = np.where(unusable[:, None], 0.0, f)
            taken, shown = np.where(unusable, 0, taken), np.where(unusable, 0, shown)
        slots, rows = self._rows(keys, requests)
        self._accumulator.observe(f, slots, rows, taken, shown)
        self.labels += int(np.minimum(taken + 1, shown).sum())

    def _boundary(self, last: bool = False) -> None:
        self._rounds += 1
        with_sketch = last or bool(self._workloads.idle()) or self._rounds % self._agent.settings.sketch_every == 0
        parts = self._drain(with_sketch)
        if parts is not None:
            self._agent.put(parts)
        if with_sketch:
            self._workloads.free_idle()
        self._workloads.next_round()
        self._round_steps = 0
        self.applied = self._agent.boundary()
        if self.applied.table is not self._in_force or self._known != self._workloads.keys:
            self._in_force = self.applied.table
            self._apply(self._in_force)

    def _drain(self, with_sketch: bool) -> RoundParts | None:
        full = self._accumulator.drain()
        labelled = full.n.any(axis=1)
        self._sketch_rows |= labelled
        used = self._sketch_rows if with_sketch else labelled
        rows = np.flatnonzero(used)
        if not len(rows):
            return None
        sketch = self._accumulator.drain_sketch().take(rows) if with_sketch else None
        if with_sketch:
            self._sketch_rows = np.zeros_like(self._sketch_rows)
        return RoundParts(
            version=self.applied.version,
            steps=self._round_steps,
            workloads=tuple(str(self._workloads.keys[row]) for row in rows),
            slopes=self._accumulator.slopes[rows],
            intercepts=self._accumulator.intercepts[rows],
            moments=full.take(rows),
            sketch=sketch,
        )

    def _apply(self, table: CoefficientTable) -> None:
        """Puts a table in force, all rows at once. Between boundaries only rows without any sums can change by it."""
        self._known = list(self._workloads.keys)
        self._accumulator.apply([table.row(key) if key is not None else table.prior for key in self._known])
