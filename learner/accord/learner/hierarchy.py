"""What the workloads of a pair share: the pair's own parameters, and the strengths of the shrinkage towards them.

s[x] ~ N(s_pair, diag(vs)),   b[x, k] = level[x] + shape[k] + eps[x, k],
level[x] ~ N(level_pair, vL), eps ~ N(0, vI), weak priors on s_pair, level_pair and shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .basis import Array, SplineBasis
from .coefficients import COEFFICIENT_LIMIT, COLD_INTERCEPT, COLD_SLOPE

SLOPE_VARIANCE = 0.1**2
HINGE_VARIANCE = 0.15**2
LEVEL_VARIANCE = 0.4**2
INTERCEPT_VARIANCE = 0.15**2
PRIOR_WORKLOADS = 2.0
"""What the prior of each variance is worth, in workloads."""

PAIR_SLOPE_VARIANCE = 0.2**2
PAIR_HINGE_VARIANCE = 0.2**2
PAIR_LEVEL_VARIANCE = 0.5**2
SHAPE_VARIANCE = 0.15**2


@dataclass(frozen=True)
class Hierarchy:
    """The pair's own parameters, carried from refit to refit.

    Attributes:
        slopes: [F]; level: the mean intercept; shape: [K], sums to 0.
        slope_variance: [F] vs; level_variance: vL; intercept_variance: vI.
        centre: where the weak priors on (slopes, level) and shape have their middle, [F + 1 + K]: published medians, or
            what is known of this pair from elsewhere.
    """

    slopes: Array
    level: float
    shape: Array
    slope_variance: Array
    centre: Array
    level_variance: float = LEVEL_VARIANCE
    intercept_variance: float = INTERCEPT_VARIANCE

    @classmethod
    def cold(cls, k: int, basis: SplineBasis) -> Hierarchy:
        """Published medians and the prior variances."""
        slopes = np.zeros(basis.size)
        slopes[0] = COLD_SLOPE
        return cls.around(slopes, np.full(k, COLD_INTERCEPT))

    @classmethod
    def around(cls, slopes: Array, intercepts: Array) -> Hierarchy:
        """A pair of which these coefficients [F], [K] are expected, with the prior variances."""
        level = float(intercepts.mean())
        shape = intercepts - level
        centre = np.concatenate([slopes, [level], shape])
        return cls(slopes.copy(), level, shape, prior_slope_variance(len(slopes)), centre)

    @property
    def mean(self) -> Array:
        """(slopes, level), [F + 1]."""
        return np.append(self.slopes, self.level)

    @property
    def precision(self) -> Array:
        """Prior precision of a workload's (slopes, level), [F + 1]."""
        return 1.0 / np.append(self.slope_variance, self.level_variance)

    @property
    def intercepts(self) -> Array:
        """Intercepts [K] of a workload that nobody has seen."""
        return np.clip(self.level + self.shape, -COEFFICIENT_LIMIT, COEFFICIENT_LIMIT)


def prior_slope_variance(size: int) -> Array:
    """[F]: the linear slope hardly moves between workloads, the bends may."""
    return np.array([SLOPE_VARIANCE] + [HINGE_VARIANCE] * (size - 1))


def hyper_precision(size: int) -> Array:
    """Precision [F + 1] of the weak prior on the pair's own (slopes, level)."""
    return 1.0 / np.array([PAIR_SLOPE_VARIANCE] + [PAIR_HINGE_VARIANCE] * (size - 1) + [PAIR_LEVEL_VARIANCE])
