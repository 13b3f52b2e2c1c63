"""How good predicted probabilities are, computed from sketches at any coefficients.

Every label of a cell (position, feature bin) is taken at the cell's mean feature. With bins 0.25 wide that biases
log-loss, Brier score and AUC by less than 1e-3 on workloads with thousands of labels, and ECE, whose own bins cut
through cells, by less than 5e-3 (tests measure it); with a few hundred labels AUC and ECE can be off by 1e-2. The
request effect is not in the acceptance sketch; the survival sketch holds predictions as they were in force, the effect
included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis, sigmoid, softplus
from .coefficients import Coefficients

ECE_BINS = 20
"""Equal-width probability bins of the expected calibration error (Naeini et al. 2015)."""


@dataclass(frozen=True)
class Cells:
    """Non-empty cells of one workload's acceptance sketch, all arrays [C]: counts and the log-odds predicted there."""

    position: Array
    labels: Array
    accepted: Array
    log_odds: Array

    @classmethod
    def of(cls, acceptance: Array, row: Coefficients, basis: SplineBasis) -> Cells:
        """From the sketch [K, 64, 3] of one workload and the coefficients to be judged."""
        return Grid.of(acceptance, basis).at(row.slopes, row.intercepts)

    @property
    def probability(self) -> Array:
        """Predicted acceptance [C]."""
        return sigmoid(self.log_odds)

    @cached_property
    def losses(self) -> tuple[Array, Array]:
        """Log-loss in nats of one accepted, and of one rejected label of each cell, [C] each."""
        return softplus(-self.log_odds), softplus(self.log_odds)


@dataclass(frozen=True)
class Grid:
    """The same before any coefficients: what is worked out once where several rows are compared on one sketch.

    Attributes:
        position: intp [C]; labels, accepted: [C]; x: [C, F], basis vectors of the cells' mean features.
    """

    position: npt.NDArray[np.intp]
    labels: Array
    accepted: Array
    x: Array

    @classmethod
    def of(cls, acceptance: Array, basis: SplineBasis) -> Grid:
        """From the sketch [K, 64, 3] of one workload."""
        position, place = np.nonzero(acceptance[..., 0] > 0.0)
        cells = acceptance[position, place]
        labels = cells[:, 0]
        return cls(
            position, labels, np.minimum(np.maximum(cells[:, 1], 0.0), labels), basis.expand(cells[:, 2] / labels)
        )

    def at(self, slopes: Array, intercepts: Array) -> Cells:
        """Judged at coefficients [F], [K]."""
        log_odds = self.x @ slopes + intercepts[self.position]
        return Cells(self.position.astype(np.float64), self.labels, self.accepted, log_odds)

    def above(self, labels: float) -> Grid:
        """The cells with more than so many labels."""
        kept = self.labels > labels
        if kept.all():
            return self
        return Grid(self.position[kept], self.labels[kept], self.accepted[kept], self.x[kept])


def metrics(cells: Cells) -> dict[str, float | None]:
    """Log-loss (nats), ECE (20 equal-width bins), AUC and Brier score; None where there are no labels to tell."""
    total = float(cells.labels.sum())
    if total <= 0.0:
        return {"log_loss": None, "ece": None, "auc": None, "brier": None}
    p, n, y = cells.probability, cells.labels, cells.accepted
    if_accepted, if_rejected = cells.losses
    place = probability_bin(p)
    gap = np.bincount(place, weights=n * p - y, minlength=ECE_BINS)
    return {
        "log_loss": float((y * if_accepted + (n - y) * if_rejected).sum() / total),
        "ece": float(np.abs(gap).sum() / total),
        "auc": auc(p, y, n - y),
        "brier": float((y * (1.0 - p) ** 2 + (n - y) * p**2).sum() / total),
    }


def auc(score: Array, positive: Array, negative: Array) -> float | None:
    """P(score of an accepted label > score of a rejected one), ties counting half; None when one kind is missing.

    Args:
        score, positive, negative: [C] a score, and how many accepted and rejected labels have it.

    >>> auc(np.array([0.2, 0.8]), np.array([1.0, 3.0]), np.array([3.0, 1.0]))
    0.75
    """
    pairs = float(positive.sum()) * float(negative.sum())
    if pairs <= 0.0:
        return None
    _, group = np.unique(score, return_inverse=True)
    up, down = np.bincount(group, weights=positive), np.bincount(group, weights=negative)
    below = np.cumsum(down) - down
    return float((up * (below + 0.5 * down)).sum() / pairs)


def reliability(cells: Cells) -> list[dict[str, float]]:
    """The reliability diagram: for each non-empty probability bin labels, mean prediction and accepted share."""
    place = probability_bin(cells.probability)
    sums = [cells.labels, cells.labels * cells.probability, cells.accepted]
    count, predicted, accepted = (_binned(place, s) for s in sums)
    return _bins(count, predicted, accepted, name="labels", outcome="accepted")


def survival_reliability(survival: Array) -> list[dict[str, float]]:
    """The same for the running product that the scheduler sums, from a workload's survival sketch [K, 20, 3]."""
    count, predicted, survived = np.moveaxis(survival.sum(axis=0), -1, 0)
    return _bins(count, predicted, survived, name="positions", outcome="realised")


def accepted_per_step(survival: Array) -> dict[str, float | None]:
    """What the scheduler bought: accepted drafts of a request in a step, predicted and realised.

    From the survival sketch [K, 20, 3], over verified drafts only: their predicted survival summed, and how many
    survived, each divided by the blocks of which at least one draft was verified. The ratio of the two is 1 when the
    survivals that the scheduler sums are right on average.
    """
    blocks, (_, predicted, survived) = survival[0, :, 0].sum(), survival.sum(axis=(0, 1))
    if not blocks > 0.0:
        return {"blocks": 0.0, "expected": None, "realised": None}
    return {"blocks": float(blocks), "expected": float(predicted / blocks), "realised": float(survived / blocks)}


def positions(acceptance: Array, cells: Cells) -> list[dict[str, float | None]]:
    """For each draft position labels, accepted share and mean prediction."""
    k = acceptance.shape[0]
    place = cells.position.astype(np.intp)
    sums = [cells.labels, cells.accepted, cells.labels * cells.probability]
    n, y, p = (np.bincount(place, weights=s, minlength=k) for s in sums)
    return [
        {
            "position": float(j),
            "labels": float(n[j]),
            "accepted": float(y[j] / n[j]) if n[j] > 0 else None,
            "predicted": float(p[j] / n[j]) if n[j] > 0 else None,
        }
        for j in range(k)
    ]


def report(acceptance: Array, survival: Array, row: Coefficients, basis: SplineBasis) -> dict[str, Any]:
    """Everything that can be said of one workload at these coefficients, as plain values."""
    cells = Cells.of(acceptance, row, basis)
    return {
        "labels": float(cells.labels.sum()),
        "accepted": float(cells.accepted.sum()),
        **metrics(cells),
        "reliability": reliability(cells),
        "survival": survival_reliability(survival),
        "accepted_per_step": accepted_per_step(survival),
        "positions": positions(acceptance, cells),
    }


def probability_bin(p: Array) -> npt.NDArray[np.intp]:
    """The bin of each probability, ECE_BINS of equal width on [0, 1]; 1 belongs to the last."""
    return np.minimum((p * ECE_BINS).astype(np.intp), ECE_BINS - 1)


def _binned(place: npt.NDArray[np.intp], weights: Array) -> Array:
    return np.bincount(place, weights=weights, minlength=ECE_BINS).astype(np.float64, copy=False)


def _bins(count: Array, predicted: Array, outcome_sum: Array, *, name: str, outcome: str) -> list[dict[str, float]]:
    width = 1.0 / len(count)
    return [
        {
            "low": round(i * width, 6),
            "high": round((i + 1) * width, 6),
            name: float(count[i]),
            "predicted": float(predicted[i] / count[i]),
            outcome: float(outcome_sum[i] / count[i]),
        }
        for i in np.flatnonzero(count > 0.0)
    ]
