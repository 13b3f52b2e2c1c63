"""Which request-effect variance a workload is served with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .basis import Array
from .request_effect import VARIANCE_GRID

SIBLINGS_LABEL_SHARE = 0.1
"""How much of its siblings' log-loss counts for a workload: a rare one follows them, a rich one hardly."""

HYSTERESIS_NATS = 2.0
"""What another variance must gain, in summed log-loss, before it is served instead."""


def choose_variance(loss: Array, current: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The index of the best variance of the grid for each workload, with hysteresis.

    Args:
        loss: [W, G] faded log-loss sums in nats, one column for each variance; column 0 is no request effect.
        current: [W] indices in force.

    Returns:
        [W] indices: a column that is better than the one in force by more than the hysteresis replaces it.

    >>> choose_variance(np.array([[100.0, 70.0, 95.0], [10.0, 9.9, 9.8]]), np.array([0, 0]))
    array([1, 1])
    """
    score = _score(loss)
    best = np.argmin(score, axis=1)
    rows = np.arange(len(loss))
    gain = score[rows, current] - score[rows, best]
    return np.where(gain > HYSTERESIS_NATS, best, current).astype(np.int64)


def expected_variance(loss: Array) -> Array:
    """What the request effect's variance is expected to be, [W]: its posterior mean under a flat prior over the grid.

    Unlike the choice it owns to not knowing: without any labels in the pair it is the middle of the grid; a workload
    that has none of its own leans on its siblings. The integral is the trapezoidal rule's.

    >>> expected_variance(np.zeros((1, 6))).round(3)
    array([0.2])
    >>> expected_variance(np.array([[0.0] * 6, [900.0, 850.0, 820.0, 800.0, 840.0, 860.0]])).round(3)
    array([0.101, 0.1  ])
    """
    score = _score(loss)
    grid = np.array(VARIANCE_GRID)
    width = np.diff(np.concatenate([grid[:1], 0.5 * (grid[1:] + grid[:-1]), grid[-1:]]))
    weight = width * np.exp(score.min(axis=1, keepdims=True) - score)
    mean: Array = weight @ grid / weight.sum(axis=1)
    return mean


def _score(loss: Array) -> Array:
    """Log-losses [W, G] with a share of the siblings'."""
    score: Array = loss + SIBLINGS_LABEL_SHARE * (loss.sum(axis=0) - loss)
    return score
