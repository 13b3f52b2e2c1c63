"""Whether the labels of an engine contradict the fit otherwise than the labels of the others do.

Compared are one-step estimates of the error of the log-odds, of level and of slope (see `outlier`).
"""

from __future__ import annotations

import numpy as np

from .basis import Array
from .outlier import LEAST_ENGINES, Estimates, Flags, outliers

LEAST_LEVEL, LEAST_SLOPE = 0.15, 0.06
"""Smaller deviations, in log-odds and in slope, are no reason to set an engine aside."""

LEAST_CURVATURE = 4.0
"""sum v below which an engine's record says nothing about the others."""


def deviating(records: Array, heard: Flags, usable: Flags, scatter: Array) -> tuple[Flags, Array, Array]:
    """Who of those that spoke deviates in which workload, and by how much in level and in slope, [E, W] each.

    Args:
        records: [E, W, 6], as `Influence` has them; heard: [E, 1] who has a say; usable: [E, W] who spoke of what.
        scatter: [W], as `Said` has it.
    """
    aside, level, slope = np.zeros(usable.shape, dtype=np.bool_), np.zeros(usable.shape), np.zeros(usable.shape)
    rows = np.flatnonzero(usable.any(axis=0))
    if len(records) < LEAST_ENGINES or not len(rows):
        return aside, level, slope
    sums = records[:, rows, 1:]
    estimates = Estimates(*level_of(sums), LEAST_LEVEL), Estimates(*slope_of(sums), LEAST_SLOPE)
    found, deviations = outliers(estimates, heard & (sums[..., 1] >= LEAST_CURVATURE), scatter[rows])
    aside[:, rows] = found & usable[:, rows]
    level[:, rows], slope[:, rows] = deviations
    return aside, level, slope


def level_of(records: Array) -> tuple[Array, Array]:
    """One-step estimates of each engine's common error of the log-odds, and their curvatures."""
    g, c = records[..., 0], records[..., 1]
    return g / (c + 1.0), c + 1.0


def slope_of(records: Array) -> tuple[Array, Array]:
    """The same of the slope, the level eliminated."""
    g, c, gf, cf, cff = np.moveaxis(records, -1, 0)
    mean = cf / (c + 1.0)
    curvature = np.maximum(cff - mean * cf, 0.0) + 1.0
    return (gf - mean * g) / curvature, curvature
