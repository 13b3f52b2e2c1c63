"""Whether the labels of an engine contradict the fit otherwise than the labels of the others do.

Compared are one-step estimates of the error of the log-odds, in every direction (see `directions` and `outlier`).
"""

from __future__ import annotations

import numpy as np

from .basis import Array
from .directions import Directions
from .outlier import LEAST_ENGINES, Flags, outliers


def deviating(
    directions: Directions, records: Array, known: Flags, usable: Flags, scatter: Array
) -> tuple[Flags, Array, Array]:
    """Who of those that spoke deviates in which workload, and by how much in level and in slope, [E, W] each.

    Args:
        directions: of the pair; records: [E, W, 1 + D] or [E, W, 6], as `Influence` has them.
        known: [E, W] whose records count in what; usable: [E, W] who spoke of what.
        scatter: [W], as `Said` has it.
    """
    aside, level, slope = np.zeros(usable.shape, dtype=np.bool_), np.zeros(usable.shape), np.zeros(usable.shape)
    rows = np.flatnonzero(usable.any(axis=0))
    if len(records) < LEAST_ENGINES or not len(rows):
        return aside, level, slope
    sums = records[:, rows, 1:]
    found, deviations = outliers(list(directions.estimates(sums)), known[:, rows], scatter[rows])
    aside[:, rows] = found & usable[:, rows]
    level[:, rows], slope[:, rows] = deviations[:2]
    return aside, level, slope
