"""The spline basis of the feature logit(q_max), and the packing of its symmetric moments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from .errors import InvalidValue

Array = npt.NDArray[np.float64]

FEATURE_LIMIT = 40.0
"""Features are clipped to [-FEATURE_LIMIT, FEATURE_LIMIT] before anything else sees them."""

MAX_KNOTS = 7
DEFAULT_KNOTS = (0.0, 2.0, 4.0)


@dataclass(frozen=True)
class SplineBasis:
    """x(f) = (f, max(f - t1, 0), ..., max(f - tm, 0)): linear between knots, continuous, any number of knots.

    No knots give the published single-slope model. The slope between knot j and knot j + 1 is the sum of the first
    j + 1 slopes, so an acceptance that never falls with f needs every cumulative slope to be >= 0.

    Args:
        knots: strictly increasing, finite, inside the feature range; at most 7.

    Raises:
        InvalidValue: when the knots are not such a sequence.

    >>> SplineBasis((0.0, 2.0)).expand([-1.0, 3.0])
    array([[-1.,  0.,  0.],
           [ 3.,  3.,  1.]])
    """

    knots: tuple[float, ...] = DEFAULT_KNOTS

    def __post_init__(self) -> None:
        knots = tuple(float(t) for t in self.knots)
        object.__setattr__(self, "knots", knots)
        if len(knots) > MAX_KNOTS:
            raise InvalidValue("knots", self.knots, f"at most {MAX_KNOTS} knots")
        if not all(-FEATURE_LIMIT < t < FEATURE_LIMIT for t in knots):
            raise InvalidValue("knots", self.knots, f"each must lie strictly within {FEATURE_LIMIT} of 0")
        if any(b <= a for a, b in itertools.pairwise(knots)):
            raise InvalidValue("knots", self.knots, "must be strictly increasing")

    @property
    def size(self) -> int:
        """F, the number of slopes: 1 + the number of knots."""
        return 1 + len(self.knots)

    @property
    def packed_size(self) -> int:
        """F (F + 1) / 2, the length of a packed symmetric matrix."""
        return self.size * (self.size + 1) // 2

    @property
    def triangle(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Row and column indices of the packed upper triangle, row by row; shared, so not to be written to."""
        return _triangle(self.size)

    def expand(self, features: npt.ArrayLike) -> Array:
        """Features [...] -> basis vectors [..., F], float64, clipped to the feature range first."""
        f = np.minimum(np.maximum(np.asarray(features, dtype=np.float64), -FEATURE_LIMIT), FEATURE_LIMIT)
        x = np.empty((*f.shape, self.size))
        x[..., 0] = f
        for j, t in enumerate(self.knots):
            np.maximum(f - t, 0.0, out=x[..., j + 1])
        return x

    def combine(self, features: Array, slopes: Array) -> Array:
        """`expand(features)` times slopes, for features [N, M] that are clipped already and slopes [N, F]: [N, M].

        No basis vector is made, which is most of what the product costs.
        """
        z: Array = features * slopes[:, :1]
        for j, t in enumerate(self.knots):
            z += np.maximum(features - t, 0.0) * slopes[:, j + 1 : j + 2]
        return z

    def unpack(self, packed: npt.ArrayLike) -> Array:
        """Packed upper triangles [..., F (F + 1) / 2] -> symmetric matrices [..., F, F]."""
        p = np.asarray(packed, dtype=np.float64)
        rows, cols = self.triangle
        full = np.zeros((*p.shape[:-1], self.size, self.size))
        full[..., rows, cols] = p
        full[..., cols, rows] = p
        return full


@cache
def _triangle(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    rows, cols = np.triu_indices(size)
    rows.flags.writeable = cols.flags.writeable = False
    return rows, cols


def logit(q: npt.ArrayLike) -> Array:
    """log(q / (1 - q)) clipped to the feature range; q = 0 and q = 1 give the ends.

    Accurate for q near 0; for q near 1 compute the complement from the logits instead (1 - q has no digits left).

    >>> logit([0.5, 1.0])
    array([ 0., 40.])
    """
    p = np.asarray(q, dtype=np.float64)
    with np.errstate(divide="ignore"):
        clipped: Array = np.clip(np.log(p) - np.log1p(-p), -FEATURE_LIMIT, FEATURE_LIMIT)
    return clipped


def sigmoid(z: npt.ArrayLike) -> Array:
    """1 / (1 + exp(-z)) without overflow, float64."""
    z = np.asarray(z, dtype=np.float64)
    e = np.exp(-np.abs(z))
    out: Array = np.where(z >= 0, 1.0, e) / (1.0 + e)
    return out


def softplus(z: npt.ArrayLike) -> Array:
    """log(1 + exp(z)) without overflow: the log-loss of label 0 at log-odds z; of label 1 it is softplus(-z)."""
    out: Array = np.logaddexp(0.0, np.asarray(z, dtype=np.float64))
    return out


def check_knots(value: Sequence[float] | str) -> tuple[float, ...]:
    """Knots from a configuration value: a sequence of numbers, or text such as "0,2,4" ("" for none).

    >>> check_knots("0, 2,4")
    (0.0, 2.0, 4.0)
    >>> check_knots("")
    ()
    """
    if isinstance(value, str):
        try:
            value = [float(part) for part in value.split(",") if part.strip()]
        except ValueError:
            raise InvalidValue("knots", value, "must be numbers separated by commas") from None
    return SplineBasis(tuple(value)).knots
