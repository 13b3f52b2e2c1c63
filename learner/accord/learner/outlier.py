"""Which of several engines says something that the others contradict: Hampel's identifier (Hampel 1974).

Each engine's estimate is compared with the median of the others; the scale is their median absolute deviation together
with the estimate's own standard error. When more than a quarter of the engines deviates, it is the traffic that
changed, and nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import Array

LEAST_ENGINES = 5
"""Of fewer, an honest one that is merely different cannot be told from a faulty one."""

OUTLIER_SIGMAS = 5.0
MINORITY = 0.25
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Estimates:
    """One number of every engine, for one workload.

    Attributes:
        value: [E]; precision: [E], 1 / variance but for a common factor; least: deviations below it do not matter.
    """

    value: Array
    precision: Array
    least: float

    def excess(self, j: int, scatter: float) -> float:
        """By how much estimate j lies further from the median of the others than it may; <= 0 when it does not."""
        others = np.delete(self.value, j)
        centre = float(np.median(others))
        spread = MAD_TO_SIGMA * float(np.median(np.abs(others - centre)))
        noise = float(np.sqrt(scatter / self.precision[j] + spread**2))
        return abs(float(self.value[j]) - centre) - max(OUTLIER_SIGMAS * noise, self.least)

    def deviation(self, j: int) -> float:
        """How far estimate j lies from the median of the others."""
        return float(self.value[j] - np.median(np.delete(self.value, j)))


def deviates(estimates: tuple[Estimates, ...], j: int, scatter: float) -> tuple[float, ...] | None:
    """How far engine j deviates in each estimate, when it does in one and no more than a quarter of all engines do.

    >>> one = Estimates(np.array([0.0, 0.1, -0.1, 0.0, 2.0]), np.full(5, 100.0), 0.1)
    >>> deviates((one,), 4, 1.0), deviates((one,), 0, 1.0)
    ((2.0,), None)
    """

    def outlying(engine: int) -> bool:
        return max(estimate.excess(engine, scatter) for estimate in estimates) > 0.0

    count = len(estimates[0].value)
    if not outlying(j) or sum(map(outlying, range(count))) > max(MINORITY * count, 1.0):
        return None
    return tuple(estimate.deviation(j) for estimate in estimates)


def suspects(
    value: Array, precision: Array, known: npt.NDArray[np.bool_], j: int, least: float | Array
) -> npt.NDArray[np.bool_]:
    """In which workloads engine j may deviate at all, [R]: `excess` at the least possible scatter, all at once.

    Args:
        value, precision: [E, R]; known: [E, R] whose values count beside j's own; least: as in `Estimates`,
            one for all or [R].
    """
    others = known.copy()
    others[j] = False
    centre = masked_median(value, others)
    spread = MAD_TO_SIGMA * masked_median(np.abs(value - centre), others)
    noise = np.sqrt(1.0 / precision[j] + spread**2)
    enough = others.sum(axis=0) >= LEAST_ENGINES - 1
    found: npt.NDArray[np.bool_] = enough & (np.abs(value[j] - centre) > np.maximum(OUTLIER_SIGMAS * noise, least))
    return found


def masked_median(values: Array, mask: npt.NDArray[np.bool_]) -> Array:
    """[E, R] -> [R]: the median of each column's entries under the mask; 0 where there are none.

    >>> masked_median(np.array([[1.0, 5.0], [9.0, 7.0], [3.0, 6.0]]), np.array([[1, 0], [1, 0], [0, 0]], dtype=bool))
    array([5., 0.])
    """
    ordered = np.sort(np.where(mask, values, np.inf), axis=0)
    count = mask.sum(axis=0)
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(values) - 1)
    columns = np.arange(values.shape[1])
    middle = np.where(count > 0, 0.5 * (ordered[low, columns] + ordered[high, columns]), 0.0)
    return middle
