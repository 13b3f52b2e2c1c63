"""The summaries of a tick laid side by side, weighed engine by engine, and summed over them by workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis
from .directions import COMMON
from .drift import residual_gradient
from .influence import MAX_ENGINES, Influence, Said, SetAside, Verdict
from .information import Information
from .moments import GRID, Moments
from .outlier import LEAST_ENGINES
from .sketch import Sketch, sketch_residuals
from .summary import RoundSummary

Index = npt.NDArray[np.intp]

SKETCHES_AT_ONCE = 6
"""Summaries whose sketches are laid side by side: what a core's own cache holds."""


@dataclass
class Weighed:
    """What a tick brought, weighed, for each of W workloads.

    Attributes:
        information: of the new evidence.
        n, y: [W, K]; loss: [W, G].
        watched, watched_n: the part of information and n that drift hears.
        sketch: of the tick.
        labels: int64 [W], how many came, whatever they count.
        aside: what does not count; sketches_aside: labels of sketches that do not.
    """

    information: Information
    n: Array
    y: Array
    loss: Array
    watched: Information
    watched_n: Array
    sketch: Sketch
    labels: npt.NDArray[np.int64]
    aside: list[SetAside]
    sketches_aside: int


class Scales:
    """Weighs summaries against the fit in force.

    Args:
        keys: workloads of the state; every summary names only these.
        basis: of the pair; slopes, intercepts: [W, F], [W, K], the fit in force.
        influence: the engines' records, which take in what is weighed.
        scatter: gives [W] as `Said` has it; asked only where it matters.
    """

    def __init__(
        self,
        keys: Sequence[str],
        basis: SplineBasis,
        slopes: Array,
        intercepts: Array,
        influence: Influence,
        scatter: Callable[[], Array],
    ) -> None:
        self.keys, self.rows = keys, {key: row for row, key in enumerate(keys)}
        self.basis, self.slopes, self.intercepts = basis, slopes, intercepts
        self.influence, self.scatter = influence, scatter

    def weigh(self, summaries: Sequence[RoundSummary], at_ms: int) -> Weighed:
        """All summaries of a tick, in stream order; `at_ms` is its end."""
        w, k = len(self.keys), self.intercepts.shape[1]
        n, y, loss = (np.zeros((w, size)) for size in (k, k, GRID))
        watched = Information.zeros(w, k, self.basis), np.zeros((w, k))
        empty = Information.zeros(w, k, self.basis), n, y, loss, *watched, Sketch.zeros(w, k)
        total = Weighed(*empty, np.zeros(w, dtype=np.int64), [], 0)
        for group in _groups(summaries):
            self._weigh_group(group, at_ms, total)
        return total

    def _weigh_group(self, summaries: Sequence[RoundSummary], at_ms: int, total: Weighed) -> None:
        speakers: dict[str, bool] = {}
        for summary in summaries:
            speakers[summary.engine] = speakers.get(summary.engine, False) or summary.first_seq == 1
        places = self.influence.place(speakers, at_ms)
        laid = _Laid(summaries, self.rows, places, len(self.influence.engines), self.basis)
        before = int(self.influence.sketch_aside.sum())
        # Evidence may hold what is no number: it gets no weight.
        with np.errstate(invalid="ignore", over="ignore"):
            verdict = self.influence.judge(self._said(laid, at_ms))
            self._add_up(laid, verdict, total)
        for sketch, items in laid.sketches():
            rows, counts = laid.rows[items], verdict.sketch_weights.reshape(-1)[laid.cells[items], None, None, None]
            total.sketch.acceptance[rows] += counts * sketch.acceptance
            total.sketch.survival[rows] += counts * sketch.survival
        total.aside += self._set_aside(laid, verdict)
        total.sketches_aside += int(self.influence.sketch_aside.sum()) - before

    def _add_up(self, laid: _Laid, verdict: Verdict, total: Weighed) -> None:
        weights, gains = (table.reshape(-1)[laid.cells, None] for table in (verdict.weights, verdict.gains))
        targets = [*total.information.arrays().values(), total.n, total.y, total.loss]
        weighed = laid.evidence * weights
        weighed[:, -GRID:] *= gains
        # what is no number counts nothing, not NaN
        weighed[weights[:, 0] == 0.0] = 0.0
        sums = laid.by_workload.of(np.concatenate([weighed, np.rint(laid.labels)[:, None]], axis=1))
        _spread(sums, targets)
        total.labels += sums[:, -1].astype(np.int64)
        withheld = verdict.withheld.reshape(-1)[laid.cells]
        heard = laid.by_workload.of(np.where(withheld[:, None], 0.0, weighed)) if withheld.any() else sums
        _spread(heard, [*total.watched.arrays().values(), total.watched_n])

    def _said(self, laid: _Laid, at_ms: int) -> Said:
        moments, information = laid.moments, laid.information
        g0, g1 = residual_gradient(information, self.basis, self.slopes[laid.rows], self.intercepts[laid.rows])
        residuals = self.influence.directions.sums(g0, g1, information)
        counts = np.stack([laid.labels, moments.y.sum(axis=1)], axis=1)
        broken = ~np.isfinite(laid.evidence).all(axis=1)
        residuals[broken], counts[broken, 1] = np.nan, 0.0
        e, w = laid.engines, len(self.keys)
        told = laid.by_engine.of(
            np.concatenate([counts, residuals, counts * laid.later[:, None], moments.loss], axis=1)
        )
        ends = np.cumsum([1, 1, residuals.shape[1], 2])
        labels, accepted, said, later, loss = np.split(told.reshape(e, w, -1), ends, axis=2)
        shown, shown_residuals = np.split(self._shown(laid).reshape(e, w, -1), [2], axis=2)
        scatter = self.scatter() if e >= LEAST_ENGINES else np.ones(w)
        first = float(at_ms), labels[..., 0], accepted[..., 0], said, loss
        return Said(*first, later, shown, shown_residuals, laid.settles, scatter)

    def _shown(self, laid: _Laid) -> Array:
        """Labels, accepted ones and residuals of sketches by engine and workload, [E W, 7]."""
        found = list(laid.sketches())
        parts = [np.zeros((0, 2 + COMMON))]
        for start in range(0, len(found), SKETCHES_AT_ONCE):
            part = found[start : start + SKETCHES_AT_ONCE]
            acceptance = np.concatenate([sketch.acceptance for sketch, _ in part])
            rows = np.concatenate([laid.rows[items] for _, items in part])
            told = sketch_residuals(acceptance, self.basis, self.slopes[rows], self.intercepts[rows])
            totals = [acceptance[..., channel].sum(axis=(1, 2))[:, None] for channel in (0, 1)]
            parts.append(np.concatenate([*totals, told], axis=1))
        cells = [laid.cells[items] for _, items in found]
        index = np.concatenate(cells) if cells else np.zeros(0, dtype=np.intp)
        return _Sums(index, laid.engines * len(self.keys)).of(np.concatenate(parts))

    def _set_aside(self, laid: _Laid, verdict: Verdict) -> Iterator[SetAside]:
        if not verdict.aside.any():
            return
        labels = laid.by_engine.of(laid.labels).reshape(verdict.aside.shape)
        for place, row in zip(*np.nonzero(verdict.aside), strict=True):
            level, slope = float(verdict.level[place, row]), float(verdict.slope[place, row])
            engine = self.influence.engines[place]
            yield SetAside(engine, self.keys[row], float(labels[place, row]), level, slope)


class _Laid:
    """Each workload of each summary of a group as one of N items.

    Attributes:
        rows: [N] its workload; cells: [N] engine and workload as one number; labels: [N].
        evidence: [N, D], all that is summed of the items side by side, losses last.
        moments, information: of N items; later: [N], 1.0 behind its engine's last sketch.
        by_workload, by_engine: sums over items, [W, ...] and [E W, ...].
        settles: [E] as `Said` has it; engines: E.
    """

    def __init__(
        self,
        summaries: Sequence[RoundSummary],
        rows: Mapping[str, int],
        places: Mapping[str, int],
        engines: int,
        basis: SplineBasis,
    ) -> None:
        self.summaries, self.engines, self.workloads = summaries, engines, len(rows)
        self.sizes = [len(summary.workloads) for summary in summaries]
        self.rows = np.array([rows[key] for summary in summaries for key in summary.workloads], dtype=np.intp)
        of = np.array([places[summary.engine] for summary in summaries], dtype=np.intp)
        self.cells: Index = np.repeat(of, self.sizes) * self.workloads + self.rows
        each = [summary.moments.arrays() for summary in summaries]
        self.moments = Moments(**{name: np.concatenate([one[name] for one in each]) for name in each[0]})
        slopes = np.concatenate([summary.slopes for summary in summaries])
        intercepts = np.concatenate([summary.intercepts for summary in summaries])
        cold = np.zeros_like(slopes), np.zeros_like(intercepts)
        evidence = self.moments.gradient_at(basis, slopes, intercepts, *cold)
        self.information = Information.of(self.moments, *evidence)
        sums = self.information.arrays().values()
        self.evidence = _flat([*sums, self.moments.n, self.moments.y, self.moments.loss])
        self.labels: Array = self.moments.n.sum(axis=1)
        self.by_workload = _Sums(self.rows, self.workloads)
        self.by_engine = _Sums(self.cells, engines * self.workloads)
        last = {summary.engine: at for at, summary in enumerate(summaries) if summary.sketch is not None}
        self.settles = np.zeros(engines, dtype=np.bool_)
        for engine, at in last.items():
            self.settles[places[engine]] = summaries[at].rounds == 1
        behind = [float(at > last.get(summary.engine, at)) for at, summary in enumerate(summaries)]
        self.later = np.repeat(behind, self.sizes)

    def sketches(self) -> Iterator[tuple[Sketch, Index]]:
        """Every sketch, and the items that it belongs to."""
        for summary, end, size in zip(self.summaries, np.cumsum(self.sizes).tolist(), self.sizes, strict=True):
            if summary.sketch is not None:
                yield summary.sketch, np.arange(end - size, end)


def _groups(summaries: Sequence[RoundSummary]) -> Iterator[list[RoundSummary]]:
    """Parts of a tick that are judged at once: as many engines as there are records for.

    Not one for each boot: an engine that changes boots from summary to summary must not cost a judgement each.
    """
    group, engines = list[RoundSummary](), set[str]()
    for summary in summaries:
        if summary.engine not in engines and len(engines) == MAX_ENGINES:
            yield group
            group, engines = [], set()
        group.append(summary)
        engines.add(summary.engine)
    if group:
        yield group


class _Sums:
    """Sums over items with the same index.

    Args:
        index: [N], each below `size`.
    """

    def __init__(self, index: Index, size: int) -> None:
        self.size, self.order = size, np.argsort(index, kind="stable")
        ordered = index[self.order]
        self.starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self.places = ordered[self.starts]

    def of(self, values: Array) -> Array:
        """[N, ...] -> [size, ...]."""
        out = np.zeros((self.size, *values.shape[1:]))
        if len(self.starts):
            out[self.places] = np.add.reduceat(values[self.order], self.starts, axis=0)
        return out


def _spread(sums: Array, targets: Iterable[Array]) -> None:
    """Adds sums [W, D] to targets [W, ...], as `_flat` lays them side by side; further columns are left alone."""
    at = 0
    for target in targets:
        size = math.prod(target.shape[1:])
        target += sums[:, at : at + size].reshape(target.shape)
        at += size


def _flat(arrays: Iterable[Array]) -> Array:
    """Arrays [N, ...] side by side, [N, D]."""
    return np.concatenate([array.reshape(len(array), math.prod(array.shape[1:])) for array in arrays], axis=1)
