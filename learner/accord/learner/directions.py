"""In which directions engines are compared: level, slope, every draft position, and every stretch of the spline.

Each direction is a one-step estimate of an error of the log-odds, from sums of an engine's labels: with r = y - p and
v = p (1 - p) at the fit in force, sum r / sum v of the level, the same of one position alone; of the slope that of the
feature with the level eliminated; and of a stretch sum r t / sum v t t, where t is 1 at a knot and falls to 0 at the
next one on either side (before the first and behind the last it stays 1). Together they span every error that
coefficients can have but one: slopes before the first and behind the last knot that are wrong in opposite ways, where
few labels are undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from .basis import Array, SplineBasis
from .information import Information
from .outlier import Estimates

COMMON = 5
"""Of any sums, whatever K and the knots are: r, v, r f, v f, v f f."""

LEAST_LEVEL, LEAST_PART, LEAST_SLOPE = 0.15, 0.2, 0.06
"""Smaller deviations are no reason to set an engine aside: in log-odds, of a position or stretch too, and in slope."""


class Directions:
    """The sums of a pair, and what is estimated from them.

    Sums [..., D] hold r, v, r f, v f, v f f; then r of each position and r t of each stretch; then v, and v t t.

    Args:
        k, basis: of the pair.

    Attributes:
        width: D.
    """

    def __init__(self, k: int, basis: SplineBasis) -> None:
        self.stretches = _stretches(basis)
        self.parts = k + len(self.stretches)
        self.width = COMMON + 2 * self.parts
        # t t as a combination of products of (1, f, hinges)
        square = np.einsum("mi,mj->mij", self.stretches, self.stretches)
        rows, cols = basis.triangle
        self._square = square[:, 1 + rows, 1 + cols] * np.where(rows == cols, 1.0, 2.0)

    def sums(self, g0: Array, g1: Array, information: Information) -> Array:
        """Of N items, [N, D].

        Args:
            g0: [N, F] sum r x; g1: [N, K] sum r; information: of the items.
        """
        A, c, vx = information.A, information.c, information.B.sum(axis=1)
        r, v, constant, rest = g1.sum(axis=1), c.sum(axis=1), self.stretches[:, 0], self.stretches[:, 1:].T
        common = np.stack([r, v, g0[:, 0], vx[:, 0], A[:, 0]], axis=1)
        rt = r[:, None] * constant + g0 @ rest
        vtt = v[:, None] * constant**2 + 2.0 * (vx @ rest) * constant + A @ self._square.T
        return np.concatenate([common, g1, rt, c, vtt], axis=1)

    def estimates(self, sums: Array) -> Iterator[Estimates]:
        """Level, slope, positions and stretches of sums [..., D]; of sums [..., 5] only the first two."""
        yield Estimates(*level_of(sums), LEAST_LEVEL)
        yield Estimates(*slope_of(sums), LEAST_SLOPE)
        if sums.shape[-1] > COMMON:
            for place in range(COMMON, COMMON + self.parts):
                precision = np.maximum(sums[..., place + self.parts], 0.0) + 1.0
                yield Estimates(sums[..., place] / precision, precision, LEAST_PART)


def _stretches(basis: SplineBasis) -> Array:
    """Each knot's t as a combination of (1, f, hinges), [M, 1 + F]; none where fewer than two knots part nothing."""
    count = len(basis.knots)
    found = np.zeros((count if count > 1 else 0, 1 + basis.size))
    for place, (left, right) in enumerate(pairwise(basis.knots if count > 1 else ())):
        # from 0 at the left knot to 1 at the right one
        rise = np.zeros(1 + basis.size)
        rise[2 + place], rise[3 + place] = 1.0 / (right - left), -1.0 / (right - left)
        found[place + 1] += rise
        found[place] -= rise
    if count > 1:
        found[0, 0] = 1.0
    return found


def level_of(sums: Array) -> tuple[Array, Array]:
    """One-step estimates of a common error of the log-odds, and their curvatures."""
    g, c = sums[..., 0], sums[..., 1] + 1.0
    return g / c, c


def slope_of(sums: Array) -> tuple[Array, Array]:
    """The same of the slope, the level eliminated."""
    g, c, gf, cf, cff = (sums[..., place] for place in range(COMMON))
    mean = cf / (c + 1.0)
    curvature = np.maximum(cff - mean * cf, 0.0) + 1.0
    return (gf - mean * g) / curvature, curvature
