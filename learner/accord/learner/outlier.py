"""Which of several engines says something that the others contradict: Hampel's identifier (Hampel 1974).

Each engine's estimate is compared with the median of the others; the scale is their median absolute deviation together
with the estimate's own standard error. When more than a quarter of the engines deviates, it is the traffic that
changed, and nobody does.

Everybody is judged at once, in every workload: leaving one value out of a sorted column moves its median by one place,
so one sort of a column gives the medians of the others for all its engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import Array

Flags = npt.NDArray[np.bool_]

LEAST_ENGINES = 5
"""Of fewer, an honest one that is merely different cannot be told from a faulty one."""

OUTLIER_SIGMAS = 5.0
MINORITY = 0.25
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Estimates:
    """One number of every engine in every column, a column being a workload or a part of one.

    Attributes:
        value: [E, C]; precision: [E, C], 1 / variance but for a common factor; least: smaller deviations do not matter.
    """

    value: Array
    precision: Array
    least: float


def outliers(estimates: Sequence[Estimates], known: Flags, scatter: float | Array) -> tuple[Flags, list[Array]]:
    """Who deviates in one of the estimates, where no more than a quarter of those that can be judged does.

    Args:
        estimates: of the same engines and columns.
        known: [E, C] whose values count; one that is not known is compared with those that are.
        scatter: the common factor of the variances, one or [C].

    Returns:
        [E, C] who deviates, and for each estimate by how much each value lies off the median of the others, [E, C].

    >>> values = np.array([[0.0], [0.1], [-0.1], [0.0], [2.0]])
    >>> found, (off,) = outliers([Estimates(values, np.full((5, 1), 100.0), 0.1)], np.ones((5, 1), dtype=bool), 1.0)
    >>> found[:, 0].tolist(), off[4, 0].tolist()
    ([False, False, False, False, True], 2.0)
    """
    value = np.concatenate([one.value for one in estimates], axis=1)
    precision = np.concatenate([one.precision for one in estimates], axis=1)
    least = np.repeat([one.least for one in estimates], known.shape[1])
    centre, spread = _centre_and_spread(value, np.tile(known, len(estimates)))
    noise = np.sqrt(np.tile(np.broadcast_to(scatter, known.shape[1]), len(estimates)) / precision + spread**2)
    off = value - centre
    beyond = np.abs(off) > np.maximum(OUTLIER_SIGMAS * noise, least)
    outlying = np.logical_or.reduce(np.split(beyond, len(estimates), axis=1))
    outlying &= others_tell(known)
    return outlying & minority(outlying, known), np.split(off, len(estimates), axis=1)


def others_tell(known: Flags) -> Flags:
    """Where there are enough others to compare one with, [E, C]."""
    found: Flags = known.sum(axis=0) - known >= LEAST_ENGINES - 1
    return found


def minority(outlying: Flags, known: Flags) -> Flags:
    """Where so few deviate that it is they, and not the traffic; each is counted among the known ones and itself."""
    others = known.sum(axis=0) - known
    many = np.count_nonzero(outlying & known, axis=0) + (outlying & ~known)
    found: Flags = many <= np.maximum(MINORITY * (others + 1), 1.0)
    return found


def median_of_others(values: Array, known: Flags) -> Array:
    """The median of the other known values of its column, for each of [E, C]; 0 where there are none.

    >>> median_of_others(np.array([[1.0], [9.0], [3.0], [7.0]]), np.array([[1], [1], [1], [0]], dtype=bool))[:, 0]
    array([6., 2., 5., 3.])
    """
    lower, upper = _middle_of_others(values, known)
    return 0.5 * (lower + upper)


def _middle_of_others(values: Array, known: Flags) -> tuple[Array, Array]:
    """The two values in the middle of the others, [E, C] each; the same one where the others are odd in number."""
    ordered = np.sort(np.where(known, values, np.inf), axis=0)
    others, columns, last = known.sum(axis=0) - known, np.arange(values.shape[1]), len(values) - 1

    def at(place: npt.NDArray[np.intp]) -> Array:
        found = ordered[place, columns]
        # What stood at or before this place has gone, so the next one stands here.
        after = ordered[np.minimum(place + 1, last), columns]
        middle: Array = np.where(others > 0, np.where(known & (values <= found), after, found), 0.0)
        return middle

    return at(np.maximum(others - 1, 0) // 2), at(np.minimum(others // 2, last))


def _centre_and_spread(values: Array, known: Flags) -> tuple[Array, Array]:
    """The median of the others, and their scatter about it as a standard deviation, for each of [E, C].

    A column has at most four different medians of others: without a value from its lower half, from its upper half,
    without the one in the middle, and, for those that are not known, with all of them. Distances are sorted once from
    each.
    """
    centre = median_of_others(values, known)
    spread = np.zeros_like(centre)
    left, columns = np.ones(values.shape, dtype=np.bool_), np.arange(values.shape[1])
    while left.any():
        first = np.argmax(left, axis=0)
        about = centre[first, columns]
        here = left & ((centre == about) | np.isnan(centre))
        spread = np.where(here, median_of_others(np.abs(values - about), known), spread)
        left &= ~here
    return centre, MAD_TO_SIGMA * spread
