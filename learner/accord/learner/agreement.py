"""Whether the labels of an engine contradict the fit otherwise than the labels of the others do.

Compared are one-step estimates of the error of the log-odds, in every direction (see `directions` and `outlier`).
"""

from __future__ import annotations

import numpy as np

from .basis import Array
from .directions import Directions
from .outlier import LEAST_ENGINES, Flags, outliers

LEAST_CURVATURE = 4.0
"""sum v below which an engine's record says nothing about the others."""


def deviating(
    directions: Directions, records: Array, heard: Flags, usable: Flags, scatter: Array
) -> tuple[Flags, Array, Array]:
    """Who of those that spoke deviates in which workload, and by how much in level and in slope, [E, W] each.

    Args:
        directions: of the pair; records: [E, W, 1 + D] or [E, W, 6], as `Influence` has them.
        heard: [E, W] who has a say in what; usable: [E, W] who spoke of what.
        scatter: [W], as `Said` has it.
    """
    aside, level, slope = np.zeros(usable.shape, dtype=np.bool_), np.zeros(usable.shape), np.zeros(usable.shape)
    rows = np.flatnonzero(usable.any(axis=0))
    if len(records) < LEAST_ENGINES or not len(rows):
        return aside, level, slope
    sums = records[:, rows, 1:]
    known = heard[:, rows] & (sums[..., 1] >= LEAST_CURVATURE)
    found, deviations = outliers(list(directions.estimates(sums)), known, scatter[rows])
    aside[:, rows] = found & usable[:, rows]
    level[:, rows], slope[:, rows] = deviations[:2]
    return aside, level, slope
