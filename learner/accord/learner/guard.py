"""Decides whether freshly fitted coefficients may be served: is the change real, and does it not hurt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .basis import Array, SplineBasis, sigmoid
from .calibration import Cells
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
    return verdict(*differences(acceptance, old, new, basis))


def differences(
    acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis
) -> tuple[float, float, float]:
    """Labels, and the sums over them of (log-loss of new - log-loss of old) and of its square: these add up."""
    before, after = Cells.of(acceptance, old, basis), Cells.of(acceptance, new, basis)
    y, n = before.accepted, before.labels
    (old1, old0), (new1, new0) = before.loss(), after.loss()
    total = float((y * (new1 - old1) + (n - y) * (new0 - old0)).sum())
    square = float((y * (new1 - old1) ** 2 + (n - y) * (new0 - old0) ** 2).sum())
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
    for halvings in range(1, MAX_HALVINGS + 1):
        t = 0.5**halvings
        between = Coefficients(
            old.slopes + t * (new.slopes - old.slopes),
            old.intercepts + t * (new.intercepts - old.intercepts),
            new.request_variance,
        )
        judged = judge(acceptance, old, between, basis)
        if judged.difference < -WORSE_BY_NOISE * judged.noise:
            return between
    return None


def moved(acceptance: Array, old: Coefficients, new: Coefficients, basis: SplineBasis) -> float:
    """The largest change of predicted probability where there is traffic; infinite when the request effect changed."""
    if old.request_variance != new.request_variance:
        return float("inf")
    if np.any(acceptance[..., 0] > TRAFFIC_LABELS):
        acceptance = np.where(acceptance[..., :1] > TRAFFIC_LABELS, acceptance, 0.0)
        before = Cells.of(acceptance, old, basis).probability
        after = Cells.of(acceptance, new, basis).probability
    else:
        x = basis.expand(_PROBES)
        before = sigmoid((x @ old.slopes)[:, None] + old.intercepts)
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
        sketch, old, new = state.arrays["acceptance"][index], served.row(key), state.row(index)
        known = key in served.workloads
        proposed.rows[key] = new
        change = moved(sketch, old, new, state.basis)
        if known and change <= MATERIAL_PROBABILITY:
            continue
        judged = judge(sketch, old, new, state.basis)
        shorter = None if judged.promoted else shortened(sketch, old, new, state.basis)
        if shorter is not None:
            proposed.rows[key] = shorter
            change = moved(sketch, old, shorter, state.basis)
            if known and change <= MATERIAL_PROBABILITY:
                continue
        elif not judged.promoted:
            proposed.rows[key] = old
            proposed.held[key] = {"worse_by": judged.difference, "noise": judged.noise, "labels": judged.labels}
        if judged.promoted or shorter is not None or not known:
            proposed.moved[key] = change if known and change != float("inf") else None
    return proposed
