"""Which request-effect variance a workload is served with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .basis import Array

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
    others = loss.sum(axis=0) - loss
    score = loss + SIBLINGS_LABEL_SHARE * others
    best = np.argmin(score, axis=1)
    rows = np.arange(len(loss))
    gain = score[rows, current] - score[rows, best]
    return np.where(gain > HYSTERESIS_NATS, best, current).astype(np.int64)
