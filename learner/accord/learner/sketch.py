"""Sketches: counts over feature bins and over predicted survival, additive and free of any coefficients.

From the acceptance sketch every metric can be computed at any coefficients (what-if); the survival sketch is taken at
the predictions in force, because it judges the running product that the scheduler consumes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .basis import FEATURE_LIMIT, Array, SplineBasis, sigmoid

BINS = 64
LOW, WIDTH = -4.0, 0.25
SURVIVAL_BINS = 20
CHANNELS = 3
"""Acceptance: labels, accepted, sum of f. Survival: positions, sum of predicted survival, survived."""


def feature_bin(features: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The bin of each feature: 0.25 wide on [-4, 12], the ends absorb what lies outside.

    >>> feature_bin([-40.0, -4.0, -3.7, 11.99, 40.0])
    array([ 0,  0,  1, 63, 63])
    """
    scaled = np.floor((np.asarray(features, dtype=np.float64) - LOW) / WIDTH)
    return np.clip(scaled, 0, BINS - 1).astype(np.intp)


def survival_bin(survival: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The bin of each predicted survival, 0.05 wide on [0, 1]."""
    scaled = np.floor(np.asarray(survival, dtype=np.float64) * SURVIVAL_BINS)
    return np.clip(scaled, 0, SURVIVAL_BINS - 1).astype(np.intp)


class Sketch:
    """Both sketches of W workloads.

    Attributes:
        acceptance: float64 [W, K, 64, 3]: labels, accepted, sum of f.
        survival: float64 [W, K, 20, 3]: positions, sum of predicted survival, survived.
    """

    def __init__(self, acceptance: Array, survival: Array) -> None:
        self.acceptance = acceptance
        self.survival = survival

    @classmethod
    def zeros(cls, workloads: int, k: int) -> Sketch:
        """Empty sketches."""
        return cls(np.zeros((workloads, k, BINS, CHANNELS)), np.zeros((workloads, k, SURVIVAL_BINS, CHANNELS)))

    def take(self, rows: npt.ArrayLike) -> Sketch:
        """The sketches of some workloads, as copies."""
        index = np.asarray(rows, dtype=np.intp)
        return Sketch(self.acceptance[index], self.survival[index])

    def add_at(self, rows: npt.NDArray[np.intp], other: Sketch) -> None:
        """Adds other's workload i to row rows[i]; a row may be named more than once."""
        np.add.at(self.acceptance, rows, other.acceptance)
        np.add.at(self.survival, rows, other.survival)

    def observe(
        self,
        slots: npt.NDArray[np.intp],
        features: Array,
        survival: Array,
        accepted: npt.NDArray[np.int64],
        labelled: npt.NDArray[np.bool_],
        admitted: npt.NDArray[np.bool_],
    ) -> None:
        """Adds one decode step: features and predicted survival [B, K] of requests in workload slots [B].

        accepted [B] counts accepted drafts; labelled and admitted [B, K] mark positions with a label, and positions
        that were verified (whose survival is known even behind a rejection).
        """
        row, position = np.nonzero(labelled)
        f = features[row, position]
        target = (slots[row], position, feature_bin(f))
        for channel, values in enumerate((np.ones(len(f)), (position < accepted[row]).astype(np.float64), f)):
            np.add.at(self.acceptance[..., channel], target, values)
        row, position = np.nonzero(admitted)
        predicted = survival[row, position]
        target = (slots[row], position, survival_bin(predicted))
        survived = (position < accepted[row]).astype(np.float64)
        for channel, values in enumerate((np.ones(len(predicted)), predicted, survived)):
            np.add.at(self.survival[..., channel], target, values)


def sketch_residuals(acceptance: Array, basis: SplineBasis, slopes: Array, intercepts: Array) -> Array:
    """Sums [W, 5] of r, v, r f, v f and v f f over sketches [W, K, 64, 3] at coefficients [W, F], [W, K].

    r = y - p and v = p (1 - p), every label at the mean feature of its cell.
    """
    count, k, bins, _ = acceptance.shape
    n, y, total = np.ascontiguousarray(np.moveaxis(acceptance, -1, 0)).reshape(3, count, k * bins)
    f = np.clip(total / np.where(n > 0.0, n, 1.0), -FEATURE_LIMIT, FEATURE_LIMIT)
    p = sigmoid(basis.combine(f, slopes) + np.repeat(intercepts, bins, axis=1))
    v = n * p
    r = y - v
    v *= 1.0 - p
    vf = v * f
    sums = (r.sum(axis=1), v.sum(axis=1), (r * f).sum(axis=1), vf.sum(axis=1), (vf * f).sum(axis=1))
    stacked: Array = np.stack(sums, axis=1)
    return stacked
