"""Decides whether freshly fitted coefficients may be served: is the change real, and does it not hurt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .basis import Array, SplineBasis, sigmoid
from .calibration import Cells, Grid
from .coefficients import Coefficients, CoefficientTable
from .pair_state import PairState

MATERIAL_PROBABILITY = 0.002
"""A change that moves no predicted probability by more than this, where there is traffic, is not published."""

WORSE_BY_NOISE = 3.0
"""New coefficients are refused when recent log-loss grew by more than this many standard errors of the difference."""

TRAFFIC_LABELS = 0.5
"""A cell that has faded below this has no traffic."""

MAX_HALVINGS = 8
"""How often the step to new coefficients is halved before it is given up."""

MIN_JUDGED_LABELS = 200.0
"""Fewer labels than this cannot tell: the fit, which has its prior, is trusted."""

_PROBES = np.linspace(-3.0, 8.0, 12)
"""Where probabilities are compared for a workload whose sketch is still empty."""


@dataclass(frozen=True)
class Judgement:
    """The guard's word on one workload.

    Attributes:
        promoted: whether the new coefficients may be served.
        difference: recent log-loss per label of new minus old, nats.
        noise: its standard error; labels: how many were judged.
    """

    promoted: bool
    difference: float
    noise: float
    labels: float


def judge(acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis) -> Judgement:
    """Compares the log-loss of old and new coefficients, label by label, on a workload's sketch [K, 64, 3].

    The difference of each label's two losses has a mean and a variance over the labels; new coefficients are refused
    when the mean exceeds WORSE_BY_NOISE standard errors (a paired one-sided z-test).
    """
    return Recent(acceptance, old, basis).judge(new)


def differences(
    acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis
) -> tuple[float, float, float]:
    """Labels, and the sums over them of (log-loss of new - log-loss of old) and of its square: these add up."""
    grid = Grid.of(acceptance, basis)
    return compared(grid.at(old.slopes, old.intercepts), grid.at(new.slopes, new.intercepts))


def compared(before: Cells, after: Cells) -> tuple[float, float, float]:
    """The same of the same cells at two rows."""
    y, n = before.accepted, before.labels
    rejected = n - y
    (old1, old0), (new1, new0) = before.losses, after.losses
    if_accepted, if_rejected = new1 - old1, new0 - old0
    total = float((y * if_accepted + rejected * if_rejected).sum())
    square = float((y * if_accepted**2 + rejected * if_rejected**2).sum())
    return float(n.sum()), total, square


def verdict(labels: float, total: float, square: float) -> Judgement:
    """The word on sums of differences; see `judge`."""
    if labels < MIN_JUDGED_LABELS:
        return Judgement(True, 0.0, float("inf"), labels)
    difference = total / labels
    noise = float(np.sqrt(max(square / labels - difference**2, 0.0) / labels))
    return Judgement(difference <= WORSE_BY_NOISE * noise, difference, noise, labels)


def shortened(acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis) -> Coefficients | None:
    """The longest halving of the step from old to new that clearly improves recent log-loss, or None.

    Evidence taken where p (1 - p) is nearly 0 makes a Newton step far too long, and while the old coefficients stay in
    force all new evidence is taken there again. Along the step log-loss is convex: when some part of it helps, a
    halving finds it (backtracking), and when the step leads the wrong way, none does.
    """
    return Recent(acceptance, old, basis).shortened(new)


def moved(acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis) -> float:
    """The largest change of predicted probability where there is traffic; infinite when the request effect changed."""
    return Recent(acceptance, old, basis).moved(new)


class Recent:
    """A workload's recent labels with what the row in force says of them, for any number of other rows.

    Args:
        acceptance: sketch [K, 64, 3]; old: the row in force.
    """

    def __init__(self, acceptance: Array, old: Coefficients, basis: SplineBasis) -> None:
        self.acceptance, self.old, self.basis = acceptance, old, basis

    @cached_property
    def grid(self) -> Grid:
        """Of all labels."""
        return Grid.of(self.acceptance, self.basis)

    @cached_property
    def before(self) -> Cells:
        """All labels at the old row."""
        return self.grid.at(self.old.slopes, self.old.intercepts)

    @cached_property
    def traffic(self) -> tuple[Grid, Array]:
        """The cells with traffic, and the probabilities of the old row there."""
        grid = self.grid.above(TRAFFIC_LABELS)
        return grid, grid.at(self.old.slopes, self.old.intercepts).probability

    def judge(self, new: Coefficients) -> Judgement:
        """See `judge`."""
        return self._judged(new.slopes, new.intercepts)

    def _judged(self, slopes: Array, intercepts: Array) -> Judgement:
        return verdict(*compared(self.before, self.grid.at(slopes, intercepts)))

    def shortened(self, new: Coefficients) -> Coefficients | None:
        """See `shortened`."""
        ds, db = new.slopes - self.old.slopes, new.intercepts - self.old.intercepts
        for halvings in range(1, MAX_HALVINGS + 1):
            t = 0.5**halvings
            slopes, intercepts = self.old.slopes + t * ds, self.old.intercepts + t * db
            judged = self._judged(slopes, intercepts)
            if judged.difference < -WORSE_BY_NOISE * judged.noise:
                return Coefficients(slopes, intercepts, new.request_variance)
        return None

    def moved(self, new: Coefficients) -> float:
        """See `moved`."""
        if self.old.request_variance != new.request_variance:
            return float("inf")
        grid, before = self.traffic
        if len(grid.labels):
            after = grid.at(new.slopes, new.intercepts).probability
        else:
            x = self.basis.expand(_PROBES)
            before = sigmoid((x @ self.old.slopes)[:, None] + self.old.intercepts)
            after = sigmoid((x @ new.slopes)[:, None] + new.intercepts)
        return float(np.abs(after - before).max())


@dataclass(frozen=True)
class Proposal:
    """What the learner would serve next.

    Attributes:
        rows: every workload's row: the fitted one; a shorter step towards it where the whole step hurts; or the served
            one where the guard holds the fitted one back.
        moved: workload -> largest change of probability, material ones only; None for a new row or request effect.
        held: workload -> why the guard keeps the served row.
    """

    rows: dict[str, Coefficients]
    moved: dict[str, float | None]
    held: dict[str, dict[str, float]]

    @property
    def material(self) -> bool:
        """Whether anything would change that engines could notice."""
        return bool(self.moved)


def proposal(state: PairState, served: CoefficientTable) -> Proposal:
    """Judges every workload's fitted row against the served one."""
    proposed = Proposal({}, {}, {})
    for index, key in enumerate(state.keys):
        old, new = served.row(key), state.row(index)
        recent = Recent(state.arrays["acceptance"][index], old, state.basis)
        known = key in served.workloads
        proposed.rows[key] = new
        change = recent.moved(new)
        if known and change <= MATERIAL_PROBABILITY:
            continue
        judged = recent.judge(new)
        shorter = None if judged.promoted else recent.shortened(new)
        if shorter is not None:
            proposed.rows[key] = shorter
            change = recent.moved(shorter)
            if known and change <= MATERIAL_PROBABILITY:
                continue
        elif not judged.promoted:
            proposed.rows[key] = old
            proposed.held[key] = {"worse_by": judged.difference, "noise": judged.noise, "labels": judged.labels}
        if judged.promoted or shorter is not None or not known:
            proposed.moved[key] = change if known and change != float("inf") else None
    return proposed
