"""What is known of one pair: a pure, deterministic function of the summaries folded into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis
from .coefficients import MAX_WORKLOADS, Coefficients, CoefficientTable
from .errors import Reason, Refusal
from .hierarchy import Hierarchy
from .information import Information
from .moments import GRID
from .refit import Fit, FitStatus, refit
from .request_effect import VARIANCE_GRID
from .sketch import BINS, CHANNELS, SURVIVAL_BINS, Sketch
from .summary import RoundSummary
from .variance_choice import choose_variance

MEMORY_LABELS = 50_000.0
"""After this many new labels of a workload, what it knew before counts 1 / e."""

SKETCH_MEMORY_LABELS = 20_000.0
"""The same for sketches, which judge the recent past."""

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


@dataclass
class PairState:
    """Faded evidence, sketches and the last fit of every workload of a pair.

    Attributes:
        pair, k, knots: identity.
        keys: workloads in order of first appearance, at most 64.
        hierarchy: the pair's own parameters.
        arrays: float64 [W, ...] by the names of `PER_WORKLOAD`.
        labels: int64 [W], every label ever learnt; event_ms: int64 [W], when evidence last came.
        choice: int64 [W], index into the request-effect grid.
        status: of the last refit; refits: how many there were.
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
    status: FitStatus = FitStatus.CONVERGED
    refits: int = 0

    def __post_init__(self) -> None:
        self.basis = SplineBasis(self.knots)
        self.hierarchy = Hierarchy.cold(self.k, self.basis)
        self.arrays = {name: np.zeros(self.shape(name, 0)) for name in PER_WORKLOAD}
        self.labels, self.event_ms, self.choice = (np.zeros(0, dtype=np.int64) for _ in range(3))

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

    def room_for(self, summary: RoundSummary) -> None:
        """Refuses a summary whose new workloads would exceed what a pair may have."""
        new = [key for key in summary.workloads if key not in self.keys]
        if len(self.keys) + len(new) > MAX_WORKLOADS:
            raise Refusal(
                Reason.WORKLOADS, f"{len(new)} new workloads beside {len(self.keys)}; at most {MAX_WORKLOADS}"
            )

    def fold(self, tick_ms: int, summaries: Sequence[RoundSummary]) -> None:
        """Adds the summaries of one tick, in stream order, and refits once.

        Args:
            tick_ms: end of the tick, unix milliseconds: the event time of what is learnt.
            summaries: validated, of this pair, each admitted by `room_for` after those before it.
        """
        for summary in summaries:
            self.reserve(summary.workloads)
        places = [self._rows(summary.workloads) for summary in summaries]
        self._fade(places, summaries)
        for rows, summary in zip(places, summaries, strict=True):
            self._add(rows, summary)
            self.event_ms[rows[summary.moments.n.sum(axis=1) > 0]] = tick_ms
        self.refit()

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
        for name in ("labels", "event_ms", "choice"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(len(new), dtype=np.int64)]))

    def _rows(self, keys: Sequence[str]) -> npt.NDArray[np.intp]:
        place = {key: row for row, key in enumerate(self.keys)}
        return np.array([place[key] for key in keys], dtype=np.intp)

    def _fade(self, places: Sequence[npt.NDArray[np.intp]], summaries: Sequence[RoundSummary]) -> None:
        new, sketched = np.zeros(len(self.keys)), np.zeros(len(self.keys))
        for rows, summary in zip(places, summaries, strict=True):
            np.add.at(new, rows, summary.moments.n.sum(axis=1))
            if summary.sketch is not None:
                np.add.at(sketched, rows, summary.sketch.acceptance[..., 0].sum(axis=(1, 2)))
        kept = np.exp(-new / self.arrays["memory"])
        self.information.scale(kept)
        for name in ("n", "y", "loss"):
            self.arrays[name] *= kept[:, None]
        kept = np.exp(-sketched / SKETCH_MEMORY_LABELS)[:, None, None, None]
        for name in ("acceptance", "survival"):
            self.arrays[name] *= kept

    def _add(self, rows: npt.NDArray[np.intp], summary: RoundSummary) -> None:
        m = summary.moments
        self.information.add_at(rows, Information.of(m, *summary.information()))
        for name in ("n", "y", "loss"):
            np.add.at(self.arrays[name], rows, getattr(m, name))
        np.add.at(self.labels, rows, np.rint(m.n.sum(axis=1)).astype(np.int64))
        if summary.sketch is not None:
            self.sketch.add_at(rows, summary.sketch)
