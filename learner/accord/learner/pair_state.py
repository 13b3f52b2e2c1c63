"""What is known of one pair: a pure, deterministic function of the summaries folded into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis
from .coefficients import MAX_WORKLOADS, Coefficients, CoefficientTable
from .directions import Directions
from .drift import PAIR_ROW, Alarm, DriftMonitor
from .errors import Reason, Refusal
from .hierarchy import Hierarchy
from .influence import Influence, SetAside
from .information import Information
from .moments import GRID
from .refit import Fit, FitStatus, refit
from .request_effect import VARIANCE_GRID
from .sketch import BINS, CHANNELS, SURVIVAL_BINS, Sketch
from .summary import RoundSummary
from .variance_choice import choose_variance
from .weighing import Scales, Weighed

MEMORY_LABELS = 50_000.0
"""After this many new labels of a workload, what it knew before counts 1 / e."""

SKETCH_MEMORY_LABELS = 20_000.0
"""The same for sketches, which judge the recent past."""

LEAST_MEMORY = 500.0
"""An alarm shortens a memory to the labels that came since the change, but not below this."""

SKETCH_AFTER_ALARM = 100.0
"""Labels that a sketch keeps then: too few to hold a fit back in the name of what is over."""

PER_WORKLOAD: dict[str, tuple[str, ...]] = {
    "A": ("P",),
    "B": ("K", "F"),
    "c": ("K",),
    "e0": ("F",),
    "e1": ("K",),
    "n": ("K",),
    "y": ("K",),
    "loss": ("G",),
    "memory": (),
    "slopes": ("F",),
    "intercepts": ("K",),
    "slope_errors": ("F",),
    "intercept_errors": ("K",),
    "acceptance": ("K", "bins", "channels"),
    "survival": ("K", "survival_bins", "channels"),
}
"""Every float64 array of the state, with its dimensions behind W."""

COUNTS = ("labels", "event_ms", "choice", "alarms", "alarm_ms")
"""Every int64 array of the state, [W]."""


@dataclass
class Folded:
    """What a tick brought beside evidence.

    Attributes:
        alarms: (workload index, alarm) for each memory that was shortened.
        aside: what was set aside.
        fresh: acceptance sketches [W, K, 64, 3] of this tick.
        sketches_aside: labels of sketches that do not count.
    """

    alarms: list[tuple[int, Alarm]]
    aside: list[SetAside]
    fresh: Array
    sketches_aside: float


@dataclass
class PairState:
    """Faded evidence, sketches and the last fit of every workload of a pair.

    Attributes:
        pair, k, knots: identity.
        keys: workloads in order of first appearance, at most 64.
        hierarchy: the pair's own parameters.
        arrays: float64 [W, ...] by the names of `PER_WORKLOAD`.
        drift, influence: what watches the evidence before it is learnt.
        labels: int64 [W], every label ever taken in, whatever it counted; event_ms: int64 [W], when evidence last came.
        alarms, alarm_ms: int64 [W], how often a memory was shortened, and when last.
        choice: int64 [W], index into the request-effect grid.
        status: of the last refit; refits: how many there were.
        river: whether ADWIN watches too; an engine by itself does with the jump detector.
    """

    pair: str
    k: int
    knots: tuple[float, ...]
    keys: list[str] = field(default_factory=list)
    hierarchy: Hierarchy = field(init=False)
    arrays: dict[str, Array] = field(init=False)
    labels: npt.NDArray[np.int64] = field(init=False)
    event_ms: npt.NDArray[np.int64] = field(init=False)
    choice: npt.NDArray[np.int64] = field(init=False)
    alarms: npt.NDArray[np.int64] = field(init=False)
    alarm_ms: npt.NDArray[np.int64] = field(init=False)
    drift: DriftMonitor = field(init=False)
    influence: Influence = field(init=False)
    status: FitStatus = FitStatus.CONVERGED
    refits: int = 0
    river: bool = True

    def __post_init__(self) -> None:
        self.basis = SplineBasis(self.knots)
        self.hierarchy = Hierarchy.cold(self.k, self.basis)
        self.arrays = {name: np.zeros(self.shape(name, 0)) for name in PER_WORKLOAD}
        for name in COUNTS:
            setattr(self, name, np.zeros(0, dtype=np.int64))
        self.drift = DriftMonitor(self.k, self.basis, river=self.river)
        self.influence = Influence(Directions(self.k, self.basis), MEMORY_LABELS, SKETCH_MEMORY_LABELS)
        keys, self.keys = self.keys, []
        self.reserve(keys)

    def shape(self, name: str, workloads: int) -> tuple[int, ...]:
        """The shape of a state array for that many workloads."""
        basis = SplineBasis(self.knots)
        size = {"P": basis.packed_size, "F": basis.size, "K": self.k, "G": GRID}
        size |= {"bins": BINS, "survival_bins": SURVIVAL_BINS, "channels": CHANNELS}
        return (workloads, *(size[dimension] for dimension in PER_WORKLOAD[name]))

    @property
    def information(self) -> Information:
        """The evidence, as views into the state."""
        return Information(*(self.arrays[name] for name in ("A", "B", "c", "e0", "e1")))

    @property
    def sketch(self) -> Sketch:
        """The sketches, as views into the state."""
        return Sketch(self.arrays["acceptance"], self.arrays["survival"])

    def fitting(self, summary: RoundSummary) -> RoundSummary:
        """What a summary says of workloads that are known, and of new ones as long as there is room for them.

        Raises:
            Refusal: when nothing of it fits.
        """
        room = MAX_WORKLOADS - len(self.keys)
        rows = []
        for row, key in enumerate(summary.workloads):
            if key not in self.keys:
                room -= 1
                if room < 0:
                    continue
            rows.append(row)
        if len(rows) == len(summary.workloads):
            return summary
        if not rows:
            count = len(summary.workloads)
            raise Refusal(Reason.WORKLOADS, f"{count} new workloads beside {len(self.keys)}; at most {MAX_WORKLOADS}")
        return summary.only(rows)

    def fold(self, tick_ms: int, summaries: Sequence[RoundSummary]) -> Folded:
        """Adds the summaries of one tick, in stream order, and refits once.

        Before anything is learnt, the residuals of the new labels at the last fit decide what each engine's labels
        count, and whether the traffic has changed; a change shortens the memory of the workloads that it concerns.

        Args:
            tick_ms: end of the tick, unix milliseconds: the event time of what is learnt.
            summaries: validated, of this pair, each made to fit by `fitting` after those before it.
        """
        for summary in summaries:
            self.reserve(summary.workloads)
        weighed = self._weighed(tick_ms, summaries)
        fit = self.arrays["slopes"], self.arrays["intercepts"]
        new = weighed.n.sum(axis=1)
        watched = weighed.watched_n.sum(axis=1)
        alarms = self.drift.observe(weighed.watched, watched, fit, self.labels, self.arrays["c"].sum(axis=1))
        shortened = self._shorten(tick_ms, alarms)
        self._fade(new, weighed.sketch.acceptance[..., 0].sum(axis=(1, 2)))
        self._add(weighed)
        self.event_ms[new > 0.0] = tick_ms
        self.refit()
        return Folded(shortened, weighed.aside, weighed.sketch.acceptance, float(weighed.sketches_aside))

    def refit(self) -> Fit:
        """One refit of every workload; an unusable one leaves the last fit in force."""
        fit = refit(self.information, self.hierarchy, self.basis)
        self.status = fit.status
        self.refits += 1
        if fit.status.usable:
            self.hierarchy = fit.hierarchy
            for name in ("slopes", "intercepts", "slope_errors", "intercept_errors"):
                self.arrays[name][:] = getattr(fit, name)
            self.choice = choose_variance(self.arrays["loss"], self.choice)
        return fit

    def table(self, version: int, published_ms: int = 0) -> CoefficientTable:
        """The coefficients as they would be served now."""
        prior = Coefficients(self.hierarchy.slopes, self.hierarchy.intercepts, self.pair_variance())
        rows = {key: self.row(index) for index, key in enumerate(self.keys)}
        return CoefficientTable(self.pair, version, prior, rows, self.knots, published_ms)

    def row(self, index: int) -> Coefficients:
        """The coefficients of one workload."""
        variance = VARIANCE_GRID[int(self.choice[index])]
        return Coefficients(self.arrays["slopes"][index], self.arrays["intercepts"][index], variance)

    def pair_variance(self) -> float:
        """The request-effect variance for a workload that nobody has seen: the best over all of them."""
        if not len(self.keys):
            return 0.0
        return VARIANCE_GRID[int(np.argmin(self.arrays["loss"].sum(axis=0)))]

    def rebase(self, table: CoefficientTable) -> None:
        """Keeps the precision of the evidence and moves its optimum to a table's coefficients.

        How an engine that learns by itself starts from what the fleet knew: the fleet's coefficients, held as firmly as
        this engine's own evidence would hold them, and the fleet's prior row for workloads it has not seen.
        """
        rows = [table.row(key) for key in self.keys]
        if rows:
            slopes, intercepts = np.stack([r.slopes for r in rows]), np.stack([r.intercepts for r in rows])
            self.information.recentre(self.basis, slopes, intercepts)
        self.hierarchy = Hierarchy.around(table.prior.slopes, table.prior.intercepts)

    def reserve(self, keys: Sequence[str]) -> None:
        """Makes room for workloads that are seen for the first time."""
        new = [key for key in keys if key not in self.keys]
        if not new:
            return
        self.keys += new
        for name, array in self.arrays.items():
            self.arrays[name] = np.concatenate([array, np.zeros(self.shape(name, len(new)))])
        self.arrays["memory"][-len(new) :] = MEMORY_LABELS
        # where they stand until a fit places them
        self.arrays["slopes"][-len(new) :] = self.hierarchy.slopes
        self.arrays["intercepts"][-len(new) :] = self.hierarchy.intercepts
        for name in COUNTS:
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(len(new), dtype=np.int64)]))
        self.drift.reserve(len(new))
        self.influence.reserve(len(new))

    def _weighed(self, tick_ms: int, summaries: Sequence[RoundSummary]) -> Weighed:
        def scatter() -> Array:
            return np.array([self.drift.dispersion(1 + row) for row in range(len(self.keys))])

        fit = self.arrays["slopes"], self.arrays["intercepts"]
        return Scales(self.keys, self.basis, *fit, self.influence, scatter).weigh(summaries, tick_ms)

    def _shorten(self, tick_ms: int, alarms: Sequence[Alarm]) -> list[tuple[int, Alarm]]:
        """Acts on alarms, each workload at most once: what was known before the change hardly counts any more."""
        concerned: dict[int, Alarm] = {}
        for alarm in alarms:
            rows = range(len(self.keys)) if alarm.row == PAIR_ROW else [alarm.row - 1]
            for index in rows:
                if alarm.row != PAIR_ROW or self.drift.follows(index, alarm):
                    concerned.setdefault(index, alarm)
        for index, alarm in concerned.items():
            n = float(self.arrays["n"][index].sum())
            own = alarm.labels if alarm.row != PAIR_ROW else 0.0
            memory = min(max(own, LEAST_MEMORY), float(self.arrays["memory"][index]))
            self.arrays["memory"][index] = memory
            self._keep(index, min(1.0, memory / max(n, 1.0)))
            self.drift.forget(index)
            self.alarms[index] += 1
            self.alarm_ms[index] = tick_ms
        return list(concerned.items())

    def _keep(self, index: int, share: float) -> None:
        """Keeps a share of what is known of a workload, and less of its sketches."""
        for name in ("A", "B", "c", "e0", "e1", "n", "y", "loss"):
            self.arrays[name][index] *= share
        sketched = float(self.arrays["acceptance"][index, ..., 0].sum())
        sketches_kept = min(1.0, SKETCH_AFTER_ALARM / max(sketched, 1.0))
        self.influence.forget(index, share, sketches_kept)
        for name in ("acceptance", "survival"):
            self.arrays[name][index] *= sketches_kept

    def _fade(self, new: Array, sketched: Array) -> None:
        kept = np.exp(-new / self.arrays["memory"])
        self.arrays["memory"] = np.minimum(self.arrays["memory"] + new, MEMORY_LABELS)
        self.information.scale(kept)
        sketches_kept = np.exp(-sketched / SKETCH_MEMORY_LABELS)
        self.influence.fade(kept, sketches_kept)
        for name in ("n", "y", "loss"):
            self.arrays[name] *= kept[:, None]
        for name in ("acceptance", "survival"):
            self.arrays[name] *= sketches_kept[:, None, None, None]

    def _add(self, weighed: Weighed) -> None:
        for name, array in self.information.arrays().items():
            array += getattr(weighed.information, name)
        for name in ("n", "y", "loss"):
            self.arrays[name] += getattr(weighed, name)
        self.labels += weighed.labels
        for name in ("acceptance", "survival"):
            self.arrays[name] += getattr(weighed.sketch, name)
