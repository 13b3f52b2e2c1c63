"""Standard errors where labels of one request resemble each other, and count the less the more there are.

Engines weigh a label by w = 1 / (1 + s0 V), V the faded curvature of its request's earlier labels (`request_effect`).
A fit takes its evidence sum w v for information; what it is really worth follows from the scores' covariance (the
sandwich of Huber 1967, White 1982; with clusters, Liang and Zeger 1986):

- labels independent given their request's effect: the score's variance is sum w^2 v, less than sum w v. The sampling
  part of every variance shrinks by their ratio;
- N requests whose effects have variance s2 share in one common level: its variance grows by s2 / N, and by more where
  they are of uneven length.

N is never sent. But how far labels were weighed down, sum w v against sum v, says how many labels a request has, and
sum v is in the sketches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .basis import Array, SplineBasis
from .coefficients import Coefficients
from .hierarchy import Hierarchy
from .request_effect import DISCOUNT, WORKING_VARIANCE
from .sketch import sketch_residuals

UNEVEN = 2.0
"""N requests of uneven length tell of the level what N / UNEVEN equal ones would: 1 + CV^2, CV = 1 when geometric."""

MOST_LABELS = 2_000
"""Of one request, as far as can be told: from there on the mean weight hardly falls."""


def mean_weights(curvature: float) -> tuple[Array, Array]:
    """Means of w and of w^2 over a request's first 1, 2, ... MOST_LABELS labels, each of that curvature v.

    >>> first, square = mean_weights(0.2)
    >>> float(first[0]), bool(first[-1] < first[10] < 1.0), bool(np.all(square <= first))
    (1.0, True, True)
    """
    before = curvature * (1.0 - DISCOUNT ** np.arange(MOST_LABELS)) / (1.0 - DISCOUNT)
    w = 1.0 / (1.0 + WORKING_VARIANCE * before)
    count = np.arange(1, MOST_LABELS + 1)
    return np.cumsum(w) / count, np.cumsum(w * w) / count


def request_share(weight: float, curvature: float) -> tuple[float, float]:
    """How many labels a request has, and sum w^2 v / sum w v, where labels of that curvature weigh so much on average.

    >>> labels, ratio = request_share(0.7, 0.15)
    >>> round(labels), round(ratio, 2)
    (116, 0.71)
    """
    first, square = mean_weights(curvature)
    place = int(np.searchsorted(-first, -weight))
    place = min(place, MOST_LABELS - 1)
    return float(place + 1), float(square[place] / first[place])


@dataclass(frozen=True)
class Evidence:
    """What decides how much a workload's evidence is worth.

    Attributes:
        labels: how many; curvature: their sum w v; pair_labels: of all the pair's workloads.
        unweighed: mean v of a label, before weights.
        request_variance: s2 of the requests' effects.
    """

    labels: float
    curvature: float
    unweighed: float
    request_variance: float
    pair_labels: float

    @classmethod
    def of(cls, n: Array, c: Array, index: int, acceptance: Array, row: Coefficients, basis: SplineBasis) -> Evidence:
        """Of one workload of a pair.

        Args:
            n, c: [W, K] labels and their sums w v.
            index: of the workload; acceptance: its sketch [K, 64, 3]; row: its fit, and the variance of the effects.
        """
        v = sketch_residuals(acceptance[None], basis, row.slopes[None], row.intercepts[None])[0, 1]
        unweighed = float(v / max(acceptance[..., 0].sum(), 1.0))
        return cls(float(n[index].sum()), float(c[index].sum()), unweighed, row.request_variance, float(n.sum()))


def corrected(
    slope_errors: Array, intercept_errors: Array, hierarchy: Hierarchy, evidence: Evidence
) -> tuple[Array, Array]:
    """Standard errors [F], [K] of a fit, with its information taken for what it is worth.

    Of a variance the share that comes from labels is 1 less its ratio to the prior variance; only this share changes.
    Without sketches nothing does.
    """
    if not (evidence.labels > 0.0 and evidence.unweighed > 0.0):
        return slope_errors, intercept_errors
    weight = evidence.curvature / (evidence.labels * evidence.unweighed)
    per_request, ratio = request_share(weight, evidence.unweighed)
    requests = max(evidence.labels / per_request, 1.0)
    prior = hierarchy.level_variance + hierarchy.intercept_variance
    slopes, _ = _worth(slope_errors**2, hierarchy.slope_variance, ratio)
    intercepts, share = _worth(intercept_errors**2, np.float64(prior), ratio)
    # a level leans on the workload's own requests, and for the rest on those of the whole pair
    pair_requests = max(evidence.pair_labels / per_request, requests)
    leans = share**2 / requests + (1.0 - share) ** 2 / pair_requests
    intercepts = intercepts + leans * UNEVEN * evidence.request_variance
    return np.sqrt(slopes), np.sqrt(intercepts)


def _worth(variance: Array, prior: Array | np.float64, ratio: float) -> tuple[Array, Array]:
    """Variances whose sampling part shrinks by `ratio`, and the share of that part."""
    share: Array = np.clip(1.0 - variance / prior, 0.0, 1.0)
    return variance * (1.0 - (1.0 - ratio) * share), share
