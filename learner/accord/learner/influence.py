"""How far one engine may move what the fleet knows: no more than its share, and not against the others' word.

Two rules, both only where at least five engines report a workload:

- share: an engine's labels count in full up to SHARES equal shares of a full memory, and less beyond. Labels with more
  curvature than the other engines' count as so many more; labels with next to none count as so many fewer;
- agreement: an engine whose labels contradict the fit otherwise than the other engines' labels do is set aside
  (weight 0) until it agrees again. Compared are one-step estimates of the error of the log-odds, of level and of slope
  (see `outlier`).

They hold for evidence and for sketches, each with records of its own, because sketches judge what is fitted to
evidence; and agreement holds for what the request effect gains, which decides its variance. What is set aside still
moves an engine's own record, so that one that recovers is heard again. A third rule needs no other engine:

- bookkeeping: sketches hold no more accepted, and no more rejected, labels than the summaries since the last sketch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import Array
from .moments import GRID
from .outlier import LEAST_ENGINES, Estimates, deviates, masked_median, suspects

MAX_ENGINES = 64
"""Engines with a record, the most recent ones; in a larger fleet they stand for the others."""

SHARES = 3.0
ENGINE_MEMORY = 5_000.0
"""Own labels after which an engine's record of disagreement has faded to 1 / e."""

LEAST_LEVEL, LEAST_SLOPE = 0.15, 0.06
"""Smaller deviations, in log-odds and in slope, are no reason to set an engine aside."""

LEAST_GAIN, GAIN_VARIANCE = 0.005, 0.02
"""The same for what a request effect gains, in nats a label; and how much that scatters from label to label."""

LEAST_CURVATURE = 4.0
"""sum v below which an engine's record says nothing about the others."""

LEAST_LABELS = 100.0
"""The same for gains."""

RESIDUALS = 5
"""Of a record: sums of r, v, r f, v f, v f f at the fit in force when they came; before them the faded labels."""

PLAUSIBLE = 5.0
"""Labels with less than 1 / PLAUSIBLE of the usual curvature are believed only as far as their curvature goes."""

UNKNOWN = float(1 << 40)
"""In the books of an engine whose earlier rounds nobody has seen."""

ROUNDING = 1e-3

Rows = npt.NDArray[np.intp]


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
        memory, sketch_memory: of a workload's evidence and sketches at their longest, in labels.

    Attributes:
        engines: names, at most 64; seen_ms: int64 [E], when each last reported; aside, sketch_aside: int64 [E], labels
            of evidence and of sketches that were set aside.
        records, sketch_records: [E, W, 6]: faded labels that count, and the five residual sums.
        gains: [E, W, G]: labels, and what every variance of the grid but 0 loses against 0, in nats.
        books: [E, W, 2]: accepted and rejected labels that no sketch has shown yet.
    """

    ARRAYS = ("records", "sketch_records", "gains", "books")

    def __init__(self, memory: float, sketch_memory: float) -> None:
        self.memory, self.sketch_memory = memory, sketch_memory
        self.engines: list[str] = []
        self.seen_ms, self.aside, self.sketch_aside = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.records, self.sketch_records = np.zeros((0, 0, 1 + RESIDUALS)), np.zeros((0, 0, 1 + RESIDUALS))
        self.gains, self.books = np.zeros((0, 0, GRID)), np.zeros((0, 0, 2))

    def reserve(self, count: int) -> None:
        """Adds rows for new workloads."""
        for name in self.ARRAYS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((len(old), count, old.shape[2]))], axis=1))

    def fade(self, kept: Array, sketches_kept: Array) -> None:
        """Fades the labels that count as the workloads' evidence and sketches fade, by [W]."""
        self.records[:, :, 0] *= kept
        self.sketch_records[:, :, 0] *= sketches_kept

    def place(self, engine: str, at_ms: int, *, first: bool) -> int:
        """Where an engine's records are, made room for if need be; `first` when its boot counts its first round."""
        if engine not in self.engines and len(self.engines) < MAX_ENGINES:
            self.engines.append(engine)
            for name in ("seen_ms", "aside", "sketch_aside"):
                setattr(self, name, np.append(getattr(self, name), 0))
            for name in self.ARRAYS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros((1, *old.shape[1:]))]))
            self.books[-1] = UNKNOWN
        elif engine not in self.engines:
            oldest = int(np.argmin(self.seen_ms))
            self.engines[oldest], self.aside[oldest], self.sketch_aside[oldest] = engine, 0, 0
            for name in self.ARRAYS:
                getattr(self, name)[oldest] = UNKNOWN if name == "books" else 0.0
        place = self.engines.index(engine)
        self.seen_ms[place] = at_ms
        if first:
            self.books[place] = 0.0
        return place

    def usual_curvature(self, place: int, rows: Rows) -> Array:
        """What a label's v is with the median of the other engines, [R]; 0 where fewer than four can tell."""
        if len(self.engines) < LEAST_ENGINES:
            return np.zeros(len(rows))
        labels = self.gains[:, rows, 0]
        others = labels >= LEAST_LABELS
        others[place] = False
        usual = masked_median(self.records[:, rows, 2] / np.maximum(labels, 1.0), others)
        return np.where(others.sum(axis=0) >= LEAST_ENGINES - 1, usual, 0.0)

    def weigh(
        self,
        place: int,
        rows: Rows,
        labels: Array,
        residuals: Array,
        usual: Array,
        dispersion: Callable[[int], float],
    ) -> tuple[Array, dict[int, tuple[float, ...]]]:
        """The weight in [0, 1] of each workload of a summary, and why those of weight 0 are set aside.

        Args:
            place: of the engine.
            rows: [R] workloads; labels: [R]; residuals: [R, 5] sums of r, v, r f, v f, v f f at the fit in force.
            usual: [R] as `usual_curvature` has it.
            dispersion: of a workload's sums of residuals, asked only where it matters.

        Returns:
            weights [R], and for each position set aside its deviation in (level, slope).
        """
        claimed = _claimed(labels, residuals[:, 1], usual)
        counted = np.maximum(labels, claimed)
        most = _plausible(labels, claimed)
        found = self._weigh(self.records, self.memory, place, rows, labels, counted, most, residuals, dispersion)
        self.aside[place] += sum(round(float(labels[i])) for i in found[1])
        return found

    def weigh_sketches(
        self,
        place: int,
        rows: Rows,
        shown: Array,
        residuals: Array,
        dispersion: Callable[[int], float],
        *,
        settle: bool,
    ) -> Array:
        """The weight in [0, 1] of each workload's sketches.

        Args:
            place, rows, residuals, dispersion: as for `weigh`, the residuals of the sketched labels.
            shown: [R, 2] accepted and rejected labels in the sketches.
            settle: whether the books of an engine that joined late are known from here on.
        """
        labels = shown.sum(axis=1)
        books = self.books[place, rows]
        false = (shown > books * (1.0 + ROUNDING) + 0.5).any(axis=1)
        left = np.maximum(books - shown, 0.0)
        self.books[place, rows] = np.where(settle & (books > 0.5 * UNKNOWN), 0.0, left)
        weights = np.zeros(len(rows))
        kept = np.flatnonzero(~false)
        told = rows[kept], labels[kept], labels[kept], np.ones(len(kept)), residuals[kept]
        weights[kept], reasons = self._weigh(self.sketch_records, self.sketch_memory, place, *told, dispersion)
        refused = float(labels[false].sum()) + sum(float(labels[kept[i]]) for i in reasons)
        self.sketch_aside[place] += round(min(refused, UNKNOWN))
        return weights

    def book(self, place: int, rows: Rows, accepted: Array, labels: Array, curvature: Array, usual: Array) -> None:
        """Notes the labels [R] of a summary, of curvatures [R], of which a sketch is still to come."""
        believed = _plausible(labels, _claimed(labels, curvature, usual))
        self.books[place, rows] += believed[:, None] * np.stack([accepted, labels - accepted], axis=1)

    def agrees_on_gains(self, place: int, rows: Rows, labels: Array, loss: Array) -> npt.NDArray[np.bool_]:
        """Whether what request effects gain, by log-loss sums [R, G] over labels [R], fits what other engines say."""
        safe = np.maximum(labels, 1.0)
        record = self.gains[place, rows] * np.exp(-labels / ENGINE_MEMORY)[:, None]
        taken = np.minimum(1.0, ENGINE_MEMORY / safe)[:, None]
        record += taken * np.concatenate([labels[:, None], loss[:, 1:] - loss[:, :1]], axis=1)
        self.gains[place, rows] = record
        records = self.gains[:, rows]
        agrees = np.ones(len(rows), dtype=np.bool_)
        if len(records) < LEAST_ENGINES:
            return agrees
        n = np.maximum(records[..., 0], 1.0)
        known, precision = records[..., 0] >= LEAST_LABELS, n / GAIN_VARIANCE
        gains = np.concatenate([records[..., column] / n for column in range(1, GRID)], axis=1)
        often = np.tile(precision, GRID - 1), np.tile(known, GRID - 1)
        for i in np.flatnonzero(suspects(gains, *often, place, LEAST_GAIN)):
            row = i % len(rows)
            engines = np.append(np.flatnonzero(known[:, row] & (np.arange(len(n)) != place)), place)
            estimate = Estimates(gains[engines, i], precision[engines, row], LEAST_GAIN)
            agrees[row] &= deviates((estimate,), len(engines) - 1, 1.0) is None
        return agrees

    def reporting(self, row: int) -> int:
        """How many engines have labels that count in a workload."""
        return int(np.count_nonzero(self.records[:, row, 0] > 0.0))

    def _weigh(
        self,
        records: Array,
        memory: float,
        place: int,
        rows: Rows,
        labels: Array,
        counted: Array,
        most: Array,
        residuals: Array,
        dispersion: Callable[[int], float],
    ) -> tuple[Array, dict[int, tuple[float, ...]]]:
        weights, reasons = np.ones(len(rows)), dict[int, tuple[float, ...]]()
        usable = (labels > 0.0) & np.isfinite(residuals).all(axis=1)
        if not usable.any():
            return weights, reasons
        safe = np.where(usable, labels, 1.0)
        # a burst counts no more than a record holds: afterwards the engine can be heard again
        own = records[place, rows, 1:] * np.exp(-safe / ENGINE_MEMORY)[:, None]
        own += np.where(usable[:, None], residuals, 0.0) * np.minimum(1.0, ENGINE_MEMORY / safe)[:, None]
        records[place, rows[usable], 1:] = own[usable]
        share = np.minimum(_share(records, memory, place, rows, np.where(usable, counted, 1.0)), most)
        weights[usable] = share[usable]
        for i in np.flatnonzero(usable & _suspects(records[:, rows, 1:], place)).tolist():
            deviation = _deviates(records[:, rows[i], 1:], place, dispersion(int(rows[i])))
            if deviation is not None:
                weights[i], reasons[i] = 0.0, deviation
        records[place, rows, 0] += np.where(usable, weights * counted, 0.0)
        return weights, reasons


def _claimed(labels: Array, curvature: Array, usual: Array) -> Array:
    """How many labels [R] have such curvatures usually; as many as there are where nobody knows."""
    claimed = np.divide(curvature, usual, out=labels.copy(), where=usual > 0.0)
    bounded: Array = np.clip(np.where(np.isfinite(claimed), claimed, labels), 0.0, UNKNOWN)
    return bounded


def _plausible(labels: Array, claimed: Array) -> Array:
    """Which share [R] of labels is believed, whose curvature would fit as many as are claimed."""
    share: Array = np.minimum(1.0, PLAUSIBLE * claimed / np.maximum(labels, 1.0))
    return share


def _share(records: Array, memory: float, place: int, rows: Rows, labels: Array) -> Array:
    counted = records[:, rows, 0]
    engines = np.count_nonzero(counted > 0.0, axis=0) + (counted[place] == 0.0)
    room = np.minimum(SHARES / engines, 1.0) * memory - counted[place]
    share: Array = np.where(engines < LEAST_ENGINES, 1.0, np.clip(room / labels, 0.0, 1.0))
    return share


def _suspects(records: Array, place: int) -> npt.NDArray[np.bool_]:
    """In which workloads of [E, R, 5] an engine may deviate, [R]."""
    rows = records.shape[1]
    if len(records) < LEAST_ENGINES:
        return np.zeros(rows, dtype=np.bool_)
    known = np.tile(records[..., 1] >= LEAST_CURVATURE, 2)
    (level, c), (slope, cff) = _level(records), _slope(records)
    value, precision = np.concatenate([level, slope], axis=1), np.concatenate([c, cff], axis=1)
    found = suspects(value, precision, known, place, np.repeat([LEAST_LEVEL, LEAST_SLOPE], rows))
    return found[:rows] | found[rows:]


def _deviates(records: Array, place: int, scatter: float) -> tuple[float, ...] | None:
    """The deviation of one engine in one workload, of records [E, 5]."""
    known = np.flatnonzero(records[:, 1] >= LEAST_CURVATURE)
    records = records[np.append(known[known != place], place)]
    estimates = Estimates(*_level(records), LEAST_LEVEL), Estimates(*_slope(records), LEAST_SLOPE)
    return deviates(estimates, len(records) - 1, scatter)


def _level(records: Array) -> tuple[Array, Array]:
    """One-step estimates of each engine's common error of the log-odds, and their curvatures."""
    g, c = records[..., 0], records[..., 1]
    return g / (c + 1.0), c + 1.0


def _slope(records: Array) -> tuple[Array, Array]:
    """The same of the slope, the level eliminated."""
    g, c, gf, cf, cff = np.moveaxis(records, -1, 0)
    mean = cf / (c + 1.0)
    curvature = np.maximum(cff - mean * cf, 0.0) + 1.0
    return (gf - mean * g) / curvature, curvature
