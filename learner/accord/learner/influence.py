"""How far one engine may move what the fleet knows: no more than its share, and not against the others' word.

Two rules, both only where at least five engines report a workload:

- share: an engine's labels count in full up to SHARES equal shares of a full memory, and less beyond. Labels with more
  curvature than the other engines' count as so many more; labels with next to none count as so many fewer;
- agreement: an engine whose labels contradict the fit otherwise than the other engines' labels do is set aside
  (weight 0) until it agrees again. Compared are one-step estimates of the error of the log-odds, in every direction
  (see `agreement`).

Engines are judged once a tick, on all that they said in it: first every record takes in what is new, then each is
compared with all others. So a verdict does not depend on who spoke first.

They hold for evidence and for sketches, each with records of its own, because sketches judge what is fitted to
evidence; and agreement holds for what the request effect gains, which decides its variance. What is set aside still
moves an engine's own record, so that one that recovers is heard again. Engines that have been silent while the others
spoke have no say any more (see `turns`). Drift has a rule of its own (see `astray`). And one needs no other engine:

- bookkeeping: sketches hold no more accepted, and no more rejected, labels than the summaries since the last sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import astray
from .agreement import deviating
from .basis import Array
from .directions import COMMON, Directions
from .moments import GRID
from .outlier import LEAST_ENGINES, Estimates, Flags, median_of_others, others_tell, outliers
from .turns import TURNS, heard, speak

MAX_ENGINES = 64
"""Engines with a record, the most recent ones; in a larger fleet they stand for the others."""

SHARES = 1.5
ENGINE_MEMORY = 5_000.0
"""Own labels after which an engine's record of disagreement has faded to 1 / e."""

LEAST_GAIN, GAIN_VARIANCE = 0.005, 0.02
"""A smaller difference in what a request effect gains, in nats a label, is no reason not to believe it; and how much
that scatters from label to label."""

LEAST_CURVATURE = 4.0
"""sum v below which an engine's record says nothing about the others."""

LEAST_LABELS = 100.0
"""Labels below which an engine's gains say nothing about the others'."""

PLAUSIBLE = 5.0
"""Labels with less than 1 / PLAUSIBLE of the usual curvature are believed only as far as their curvature goes."""

UNKNOWN = float(1 << 40)
"""In the books of an engine whose earlier rounds nobody has seen."""

ROUNDING = 1e-3


@dataclass(frozen=True)
class SetAside:
    """What one engine said of one workload in one tick, and what does not count.

    Attributes:
        engine, workload: whose; labels: how many, those of all its summaries of the tick.
        level, slope: by how much it deviates from the other engines, in log-odds and in slope.
    """

    engine: str
    workload: str
    labels: float
    level: float
    slope: float


@dataclass(frozen=True)
class Said:
    """What each engine said in one tick: sums over its summaries, zero for workloads and engines without any.

    Attributes:
        at_ms: the tick's end.
        labels, accepted: [E, W]; residuals: [E, W, D] sums at the fit in force (see `directions`).
        loss: [E, W, G] log-losses, as `Moments` has them.
        later: [E, W, 2] labels and accepted ones of the summaries behind the engine's last sketch.
        shown: [E, W, 2] labels and accepted ones in sketches; shown_residuals: [E, W, 5] their sums.
        settles: [E] whether the books of an engine that joined late are known from its sketch on.
        scatter: [W] how much more sums of residuals scatter than independent labels would.
    """

    at_ms: float
    labels: Array
    accepted: Array
    residuals: Array
    loss: Array
    later: Array
    shown: Array
    shown_residuals: Array
    settles: Flags
    scatter: Array


@dataclass(frozen=True)
class Verdict:
    """What the word of each engine counts in each workload, for one tick.

    Attributes:
        weights, sketch_weights: [E, W] in [0, 1].
        withheld: [E, W] whose evidence drift does not hear.
        gains: [E, W] whether what request effects gain is believed.
        aside: [E, W] whose evidence is set aside; level, slope: [E, W], by how much it deviates.
    """

    weights: Array
    sketch_weights: Array
    withheld: Flags
    gains: Flags
    aside: Flags
    level: Array
    slope: Array


class Influence:
    """A record of every recent engine.

    Args:
        directions: of the pair.
        memory, sketch_memory: of a workload's evidence and sketches at their longest, in labels.

    Attributes:
        engines: names, at most 64; seen_ms: int64 [E], when each last reported; aside, sketch_aside: int64 [E], labels
            of evidence and of sketches that were set aside.
        records: [E, W, 1 + D]; sketch_records: [E, W, 6]: faded labels that count, and sums at the fit in force when
            they came (see `directions`).
        gains: [E, W, G]: labels, and what every variance of the grid but 0 loses against 0, in nats.
        books: [E, W, 2]: accepted and rejected labels that no sketch has shown yet.
        recent: [E, W, 3 + D]: as `astray.remember` has it; turns: [E, W, 4], as `turns.speak` has it.
    """

    ARRAYS = ("records", "sketch_records", "gains", "books", "recent", "turns")
    COUNTS = ("seen_ms", "aside", "sketch_aside")

    def __init__(self, directions: Directions, memory: float, sketch_memory: float) -> None:
        self.directions = directions
        self.memory, self.sketch_memory = memory, sketch_memory
        self.engines: list[str] = []
        self.seen_ms, self.aside, self.sketch_aside = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.records, self.recent = (np.zeros((0, 0, head + directions.width)) for head in (1, astray.HEAD))
        self.sketch_records = np.zeros((0, 0, 1 + COMMON))
        self.gains, self.books = np.zeros((0, 0, GRID)), np.zeros((0, 0, 2))
        self.turns = np.zeros((0, 0, TURNS))

    def reserve(self, count: int) -> None:
        """Adds rows for new workloads."""
        for name in self.ARRAYS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((len(old), count, old.shape[2]))], axis=1))

    def fade(self, kept: Array, sketches_kept: Array) -> None:
        """Fades the labels that count as the workloads' evidence and sketches fade, by [W]."""
        self.records[:, :, 0] *= kept
        self.sketch_records[:, :, 0] *= sketches_kept

    def place(self, speakers: Mapping[str, bool], at_ms: int) -> dict[str, int]:
        """Where the records of engines are, made room for if need be.

        Args:
            speakers: at most 64 engines, each with whether its boot counts its first round.
            at_ms: when they spoke.
        """
        known = {engine: place for place, engine in enumerate(self.engines)}
        new = [engine for engine in speakers if engine not in known]
        self._grow(min(len(new), MAX_ENGINES - len(self.engines)))
        free = [place for place, engine in enumerate(self.engines) if not engine]
        if len(free) < len(new):
            # Of those silent as long the one that came first makes room.
            others = [place for place, engine in enumerate(self.engines) if engine and engine not in speakers]
            others.sort(key=lambda place: int(self.seen_ms[place]))
            free += others[: len(new) - len(free)]
        for engine, place in zip(new, free, strict=True):
            self.engines[place], known[engine] = engine, place
            self.aside[place] = self.sketch_aside[place] = 0
            for name in self.ARRAYS:
                getattr(self, name)[place] = UNKNOWN if name == "books" else 0.0
        places = {engine: known[engine] for engine in speakers}
        for engine, place in places.items():
            self.seen_ms[place] = at_ms
            if speakers[engine]:
                self.books[place] = 0.0
        return places

    def forget(self, row: int, kept: float, sketches_kept: float) -> None:
        """After a workload's memory was shortened: what counts fades as the memory did, and what was new is old."""
        self.records[:, row, 0] *= kept
        self.sketch_records[:, row, 0] *= sketches_kept
        self.recent[:, row, 0], self.recent[:, row, astray.HEAD :] = 0.0, 0.0

    def judge(self, said: Said) -> Verdict:
        """Takes in what was said in a tick, and says what counts of it."""
        again = speak(self.turns, said.labels, said.at_ms)
        has_say = heard(self.turns)
        finite = np.isfinite(said.residuals).all(axis=2)
        usable = (said.labels > 0.0) & finite
        self._remember(self.records, usable, said.labels, said.residuals)
        gains = self._gains(has_say, usable, said.labels, said.loss)
        claimed = _claimed(said.labels, said.residuals[..., 1], self._usual_curvature(has_say))
        believed = _plausible(said.labels, claimed)
        shares = _shares(self.records, self.memory, has_say, usable, np.maximum(said.labels, claimed))
        known = _known(self.records, has_say)
        aside, level, slope = deviating(self.directions, self.records, known, usable, said.scatter)
        told = usable, said.labels, said.residuals, said.scatter
        astray.remember(self.directions, self.recent, known, *told)
        contrary = astray.contrary(self.recent, known, usable)
        withheld = contrary | (again & (known.sum(axis=0) >= LEAST_ENGINES))
        weights = np.where(finite, 1.0, 0.0)
        weights[usable] = np.minimum(shares, believed)[usable]
        weights[aside | contrary] = 0.0
        aside |= (said.labels > 0.0) & ~finite
        self.records[..., 0] += np.where(usable, weights * np.maximum(said.labels, claimed), 0.0)
        self.aside += _whole(np.where(aside, said.labels, 0.0))
        sketched = self._sketches(said, has_say, believed)
        return Verdict(weights, np.where(weights > 0.0, sketched, 0.0), withheld, gains, aside, level, slope)

    def reporting(self, row: int) -> int:
        """How many engines that have a say have labels that count in a workload."""
        return int(np.count_nonzero(heard(self.turns)[:, row] & (self.records[:, row, 0] > 0.0)))

    def _grow(self, count: int) -> None:
        if count <= 0:
            return
        self.engines += [""] * count
        for name in (*self.COUNTS, *self.ARRAYS):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((count, *old.shape[1:]), dtype=old.dtype)]))

    def _remember(self, records: Array, usable: Flags, labels: Array, residuals: Array) -> None:
        """A burst counts no more than a record holds: afterwards the engine can be heard again."""
        faded, taken = _memory(labels)
        new = records[..., 1:] * faded + np.where(usable[..., None], residuals, 0.0) * taken
        records[..., 1:] = np.where(usable[..., None], new, records[..., 1:])

    def _usual_curvature(self, has_say: Flags) -> Array:
        """What a label's v is with the median of the other engines, [E, W]; 0 where fewer than four can tell."""
        if len(self.engines) < LEAST_ENGINES:
            return np.zeros(self.records.shape[:2])
        labels = self.gains[..., 0]
        known = has_say & (labels >= LEAST_LABELS)
        usual = median_of_others(self.records[..., 2] / np.maximum(labels, 1.0), known)
        return np.where(others_tell(known), usual, 0.0)

    def _gains(self, has_say: Flags, usable: Flags, labels: Array, loss: Array) -> Flags:
        """Whether what request effects gain for an engine fits what they gain for the others, [E, W]."""
        faded, taken = _memory(labels)
        new = np.concatenate([labels[..., None], loss[..., 1:] - loss[..., :1]], axis=2)
        self.gains = np.where(usable[..., None], self.gains * faded + new * taken, self.gains)
        agrees = np.ones(labels.shape, dtype=np.bool_)
        rows = np.flatnonzero(usable.any(axis=0))
        if len(self.engines) < LEAST_ENGINES or not len(rows):
            return agrees
        e, records = len(self.engines), self.gains[:, rows]
        n = np.maximum(records[..., :1], 1.0)
        columns = np.broadcast_to(n, records[..., 1:].shape).reshape(e, -1)
        estimates = Estimates((records[..., 1:] / n).reshape(e, -1), columns / GAIN_VARIANCE, LEAST_GAIN)
        known = np.repeat(has_say[:, rows] & (records[..., 0] >= LEAST_LABELS), GRID - 1, axis=1)
        found, _ = outliers([estimates], known, 1.0)
        agrees[:, rows] = ~found.reshape(e, len(rows), -1).any(axis=2)
        return agrees | ~usable

    def _sketches(self, said: Said, has_say: Flags, believed: Array) -> Array:
        """Keeps the books, and weighs sketches by them and by agreement, [E, W]."""
        had = _both(believed * (said.labels - said.later[..., 0]), believed * (said.accepted - said.later[..., 1]))
        shown = _both(said.shown[..., 0], said.shown[..., 1])
        labels = said.shown[..., 0]
        sketched = (labels > 0.0).any(axis=1)
        books = self.books + had
        false = (shown > books * (1.0 + ROUNDING) + 0.5).any(axis=2)
        opened = (said.settles & sketched)[:, None, None] & (self.books > 0.5 * UNKNOWN)
        left = np.where(opened, 0.0, np.maximum(books - shown, 0.0))
        self.books = left + _both(believed * said.later[..., 0], believed * said.later[..., 1])
        finite = np.isfinite(said.shown_residuals).all(axis=2)
        usable = (labels > 0.0) & ~false & finite
        self._remember(self.sketch_records, usable, labels, said.shown_residuals)
        shares = _shares(self.sketch_records, self.sketch_memory, has_say, usable, labels)
        known = _known(self.sketch_records, has_say)
        aside, _, _ = deviating(self.directions, self.sketch_records, known, usable, said.scatter)
        weights = np.where(usable & ~aside, shares, 0.0)
        self.sketch_records[..., 0] += weights * np.where(usable, labels, 0.0)
        self.sketch_aside += _whole(np.where(~usable | aside, np.minimum(labels, UNKNOWN), 0.0))
        return weights


def _both(labels: Array, accepted: Array) -> Array:
    """[..., 2] accepted and rejected labels."""
    return np.stack([accepted, labels - accepted], axis=-1)


def _whole(labels: Array) -> npt.NDArray[np.int64]:
    """[E, W] labels as whole numbers [E]."""
    whole: npt.NDArray[np.int64] = np.rint(labels).astype(np.int64).sum(axis=1)
    return whole


def _memory(labels: Array) -> tuple[Array, Array]:
    """What is kept of a record, and what is taken of new sums, [E, W, 1]."""
    kept, taken = np.exp(-labels / ENGINE_MEMORY), np.minimum(1.0, ENGINE_MEMORY / np.maximum(labels, 1.0))
    return kept[..., None], taken[..., None]


def _claimed(labels: Array, curvature: Array, usual: Array) -> Array:
    """How many labels have such curvatures usually; as many as there are where nobody knows."""
    claimed = np.divide(curvature, usual, out=labels.copy(), where=usual > 0.0)
    bounded: Array = np.clip(np.where(np.isfinite(claimed), claimed, labels), 0.0, UNKNOWN)
    return bounded


def _plausible(labels: Array, claimed: Array) -> Array:
    """Which share of labels is believed, whose curvature would fit as many as are claimed."""
    share: Array = np.minimum(1.0, PLAUSIBLE * claimed / np.maximum(labels, 1.0))
    return share


def _known(records: Array, has_say: Flags) -> Flags:
    """Whose records say something about the others, [E, W]."""
    found: Flags = has_say & (records[..., 2] >= LEAST_CURVATURE)
    return found


def _shares(records: Array, memory: float, has_say: Flags, usable: Flags, labels: Array) -> Array:
    """The share of its labels that brings an engine to no more than SHARES equal shares of a full memory, [E, W]."""
    counted = records[..., 0]
    engines = np.count_nonzero(has_say & (counted > 0.0) | usable, axis=0)
    room = np.minimum(SHARES / np.maximum(engines, 1), 1.0) * memory - counted
    safe = np.where(usable, np.maximum(labels, 1e-9), 1.0)
    share: Array = np.where(engines < LEAST_ENGINES, 1.0, np.clip(room / safe, 0.0, 1.0))
    return share
