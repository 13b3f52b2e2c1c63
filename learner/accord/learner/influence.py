"""How far one engine may move what the fleet knows: no more than its share, and not against the others' word.

Two rules, both only where at least five engines report a workload: of fewer, an honest one that is merely different
cannot be told from a faulty one:

- share: an engine's labels count in full up to SHARES equal shares of a full memory, and less beyond;
- agreement: an engine whose labels contradict the fit otherwise than the other engines' labels do is set aside
  (weight 0) until it agrees again. Compared are one-step estimates of the error of the log-odds, of level and of slope,
  each with the median of the others; the scale is their median absolute deviation and the engine's own standard error
  (Hampel's identifier; Hampel 1974). When more than a quarter of the engines deviates, it is not a fault of engines
  but a change of the traffic, and nobody is set aside.

What is set aside still moves an engine's own record, so that one that recovers is heard again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import Array

MAX_ENGINES = 64
"""Engines with a record, the most recent ones; in a larger fleet they stand for the others."""

SHARES = 3.0
LEAST_ENGINES = 5
ENGINE_MEMORY = 5_000.0
"""Own labels after which an engine's record of disagreement has faded to 1 / e."""

OUTLIER_SIGMAS = 5.0
LEAST_LEVEL, LEAST_SLOPE = 0.15, 0.06
"""Smaller deviations, in log-odds and in slope, are no reason to set an engine aside."""

LEAST_CURVATURE = 4.0
"""sum v below which an engine's record says nothing about the others."""

MINORITY = 0.25
MAD_TO_SIGMA = 1.4826
RESIDUALS = 5
"""Of a record: sums of r, v, r f, v f, v f f at the fit in force when they came; before them the faded labels."""


@dataclass(frozen=True)
class SetAside:
    """One workload of one summary that does not count.

    Attributes:
        engine, workload: whose; labels: how many.
        level, slope: by how much it deviates from the other engines, in log-odds and in slope.
    """

    engine: str
    workload: str
    labels: float
    level: float
    slope: float


class Influence:
    """A record of every recent engine.

    Args:
        memory: of a workload at its longest, in labels.

    Attributes:
        engines: names, at most 64; seen_ms: int64 [E], when each last reported; aside: int64 [E], labels set aside.
        records: [E, W, 6]: faded labels that count, and the five residual sums.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.engines: list[str] = []
        self.seen_ms, self.aside = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.records = np.zeros((0, 0, 1 + RESIDUALS))

    def reserve(self, count: int) -> None:
        """Adds rows for new workloads."""
        e, _, size = self.records.shape
        self.records = np.concatenate([self.records, np.zeros((e, count, size))], axis=1)

    def fade(self, kept: Array) -> None:
        """Fades the labels that count as the workloads' evidence fades, by [W]."""
        self.records[:, :, 0] *= kept

    def weigh(
        self,
        engine: str,
        at_ms: int,
        rows: npt.NDArray[np.intp],
        labels: Array,
        residuals: Array,
        dispersion: Callable[[int], float],
    ) -> tuple[Array, dict[int, tuple[float, float]]]:
        """The weight in [0, 1] of each workload of a summary, and why those of weight 0 are set aside.

        Args:
            engine: whose; at_ms: event time.
            rows: [R] workloads; labels: [R]; residuals: [R, 5] sums of r, v, r f, v f, v f f at the fit in force.
            dispersion: of a workload's sums of residuals, asked only where it matters.

        Returns:
            weights [R], and for each position set aside its deviation in (level, slope).
        """
        place = self._place(engine, at_ms)
        weights, reasons = np.ones(len(rows)), dict[int, tuple[float, float]]()
        for i, row in enumerate(rows):
            if labels[i] <= 0.0 or not np.all(np.isfinite(residuals[i])):
                continue
            record = self.records[place, row]
            # a burst counts no more than a record holds: afterwards the engine can be heard again
            record[1:] *= np.exp(-labels[i] / ENGINE_MEMORY)
            record[1:] += residuals[i] * min(1.0, ENGINE_MEMORY / labels[i])
            deviation = self._deviates(place, int(row), dispersion)
            if deviation is not None:
                weights[i], reasons[i] = 0.0, deviation
                self.aside[place] += round(float(labels[i]))
            else:
                weights[i] = self._share(place, int(row), float(labels[i]))
            self.records[place, row, 0] += weights[i] * labels[i]
        return weights, reasons

    def reporting(self, row: int) -> int:
        """How many engines have labels that count in a workload."""
        return int(np.count_nonzero(self.records[:, row, 0] > 0.0))

    def _place(self, engine: str, at_ms: int) -> int:
        if engine not in self.engines and len(self.engines) < MAX_ENGINES:
            self.engines.append(engine)
            self.seen_ms, self.aside = np.append(self.seen_ms, 0), np.append(self.aside, 0)
            self.records = np.concatenate([self.records, np.zeros((1, *self.records.shape[1:]))])
        elif engine not in self.engines:
            oldest = int(np.argmin(self.seen_ms))
            self.engines[oldest], self.aside[oldest], self.records[oldest] = engine, 0, 0.0
        place = self.engines.index(engine)
        self.seen_ms[place] = at_ms
        return place

    def _share(self, place: int, row: int, labels: float) -> float:
        counted = self.records[:, row, 0]
        engines = int(np.count_nonzero(counted > 0.0) + (counted[place] == 0.0))
        if engines < LEAST_ENGINES:
            return 1.0
        room = min(SHARES / engines, 1.0) * self.memory - float(counted[place])
        return float(np.clip(room / labels, 0.0, 1.0))

    def _deviates(self, place: int, row: int, dispersion: Callable[[int], float]) -> tuple[float, float] | None:
        known = np.flatnonzero(self.records[:, row, 2] >= LEAST_CURVATURE)
        if len(known) - (place in known) < LEAST_ENGINES - 1:
            return None
        known = np.append(known[known != place], place)
        records = self.records[known, row, 1:]
        scatter = dispersion(row)
        level, slope = _level(records), _slope(records)
        if (
            max(
                _outlying(*level, scatter, LEAST_LEVEL, len(known) - 1),
                _outlying(*slope, scatter, LEAST_SLOPE, len(known) - 1),
            )
            <= 0.0
        ):
            return None
        deviating = sum(
            max(_outlying(*level, scatter, LEAST_LEVEL, j), _outlying(*slope, scatter, LEAST_SLOPE, j)) > 0.0
            for j in range(len(known))
        )
        if deviating > max(MINORITY * len(known), 1.0):
            return None
        return float(level[0][-1] - np.median(level[0][:-1])), float(slope[0][-1] - np.median(slope[0][:-1]))


def _level(records: Array) -> tuple[Array, Array]:
    """One-step estimates of each engine's common error of the log-odds, and their curvatures."""
    g, c = records[:, 0], records[:, 1]
    return g / (c + 1.0), c + 1.0


def _slope(records: Array) -> tuple[Array, Array]:
    """The same of the slope, the level eliminated."""
    g, c, gf, cf, cff = records.T
    mean = cf / (c + 1.0)
    curvature = np.maximum(cff - mean * cf, 0.0) + 1.0
    return (gf - mean * g) / curvature, curvature


def _outlying(estimate: Array, curvature: Array, scatter: float, least: float, j: int) -> float:
    """By how much estimate j lies further from the median of the others than it may; <= 0 when it does not."""
    others = np.delete(estimate, j)
    centre = float(np.median(others))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(others - centre)))
    noise = float(np.sqrt(scatter / curvature[j] + spread**2))
    return abs(float(estimate[j]) - centre) - max(OUTLIER_SIGMAS * noise, least)
