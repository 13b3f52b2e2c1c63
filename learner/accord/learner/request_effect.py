"""The effect of one request: a shrunken one-step estimate of its random intercept.

A request keeps two floats, R (discounted sum of residuals y - p) and V (discounted sum of p (1 - p)), both taken
without the effect itself. Its log-odds are shifted by u = R / (V + 1 / s2): one Newton step of the posterior mode of
u ~ N(0, s2), Laplace's method for a logistic random intercept (Breslow and Clayton 1993, penalised quasi-likelihood).
u depends on tokens that are verified already, so trimming by it keeps speculative decoding lossless.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .basis import Array

VARIANCE_GRID = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
"""The s2 whose log-loss every engine sums, so that the learner can choose; the first means off."""

WORKING_VARIANCE = 0.1
"""The s2 that weighs evidence: labels of one request resemble each other, so each tells less than the one before.

A working correlation in the sense of Liang and Zeger (1986): a wrong one costs efficiency, never consistency, because
the weight of a label depends on earlier labels only. The middle of the grid, whatever s2 is served.
"""

DISCOUNT = 0.98
"""q: what a label counts after one more label of the same request."""

Index = npt.NDArray[np.intp]


class RequestEffects:
    """R and V of every request slot of an engine.

    Args:
        slots: number of request slots; a slot is reset when another request takes it.

    >>> effects = RequestEffects(2)
    >>> effects.update(np.array([0]), np.array([2]), np.array([1.0]), np.array([0.5]))
    >>> effects.shift(np.array([0, 1]), 0.5)
    array([0.4, 0. ])
    """

    def __init__(self, slots: int) -> None:
        self.residual = np.zeros(slots)
        self.curvature = np.zeros(slots)

    def reset(self, slots: npt.ArrayLike) -> None:
        """Forgets what is known of these slots: another request has taken them."""
        index = np.asarray(slots, dtype=np.intp)
        self.residual[index] = 0.0
        self.curvature[index] = 0.0

    def shift(self, slots: Index, variance: npt.ArrayLike) -> Array:
        """u for each of the slots [B] under s2, a scalar or [B] (or [B, 1] against a grid); 0 where s2 is 0."""
        s2 = np.asarray(variance, dtype=np.float64)
        residual, curvature = self.residual[slots], self.curvature[slots]
        out: Array = s2 * residual / (s2 * curvature + 1.0)
        return out

    def shift_grid(self, slots: Index) -> Array:
        """u for each of the slots under every s2 of the grid, [B, G]."""
        s2 = np.array(VARIANCE_GRID)
        residual, curvature = self.residual[slots, None], self.curvature[slots, None]
        out: Array = s2 * residual / (s2 * curvature + 1.0)
        return out

    def weight(self, slots: Index, working_variance: float) -> Array:
        """What the next labels of the slots [B] count as evidence: 1 / (1 + s2 V) under the working variance s2."""
        out: Array = 1.0 / (1.0 + working_variance * self.curvature[slots])
        return out

    def update(self, slots: Index, labels: npt.NDArray[np.int64], residual: Array, curvature: Array) -> None:
        """Adds one step's labels: m of them [B], with their summed residuals and curvatures [B] at u = 0."""
        kept = DISCOUNT**labels
        self.residual[slots] = kept * self.residual[slots] + residual
        self.curvature[slots] = kept * self.curvature[slots] + curvature
