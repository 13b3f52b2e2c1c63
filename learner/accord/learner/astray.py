"""Whether what changes is the traffic or one engine: who contradicts the fit just now, and how many do.

An alarm of drift makes a pair forget nearly all that it knew, so no single engine may cause one. Where at least five
engines have a say, neither drift nor the fit hears an engine whose newest labels contradict the fit, as long as no more
than a quarter of the engines does that. When more do, it is the traffic, and all of them are heard: a change of the
traffic is noticed as soon as a quarter of the fleet has reported it.

An engine is astray when its labels of one tick, or its last few hundred, are off in some direction by what is material
and by ASTRAY_SIGMAS standard errors, or in level over all its workloads together. Labels of one request resemble each
other, the more the fewer requests an engine had; so standard errors are as wide as such sums scatter with the other
engines: the median of what each of them remembers of its own.
"""

from __future__ import annotations

import numpy as np

from .basis import Array
from .directions import Directions, level_of
from .drift import JUMP_LOG_ODDS
from .outlier import Flags, median_of_others, minority, others_tell

RECENT_LABELS = 500.0
"""Own labels after which an engine's newest ones have faded to 1 / e; a tick's own are always whole."""

ASTRAY_SIGMAS = 3.5
LEAST_OFFSET = JUMP_LOG_ODDS
"""Because the offset of a block is a mean of those of its engines."""

SCATTER_TICKS = 16.0
"""Own ticks after which what an engine remembers of its scatter has faded to 1 / e."""

MOST_SCATTER = 25.0
"""A single sum adds no more, in squared standard errors."""

HEAD = 3
"""Before the sums of a record: whether the engine is astray, and how its ticks and its newest labels scatter."""


def remember(
    directions: Directions,
    recent: Array,
    known: Flags,
    usable: Flags,
    labels: Array,
    residuals: Array,
    scatter: Array,
) -> None:
    """Takes in what engines said in a tick, and who of them is astray.

    Args:
        directions: of the pair.
        recent: [E, W, 3 + D], changed in place: 1.0 where what an engine said last contradicts the fit; the mean square
            of its level in standard errors, by tick and of its newest labels; and the faded sums of these.
        known: [E, W] who has a say; usable: [E, W] who said something of what; labels: [E, W].
        residuals: [E, W, D] the tick's sums; scatter: [W], as `Said` has it: standard errors are no narrower.
    """
    kept, new = np.exp(-np.where(usable, labels, 0.0) / RECENT_LABELS), np.where(usable[..., None], residuals, 0.0)
    recent[..., HEAD:] = recent[..., HEAD:] * kept[..., None] + new
    astray = np.zeros(usable.shape, dtype=np.bool_)
    for place, sums in ((1, new), (2, recent[..., HEAD:])):
        usual = np.maximum(median_of_others(recent[..., place], known & (recent[..., place] > 0.0)), scatter)
        astray |= _contradicts(directions, sums, usual)
        level, precision = level_of(sums)
        square = np.minimum(level**2 * precision, MOST_SCATTER)
        step = np.where(recent[..., place] > 0.0, 1.0 / SCATTER_TICKS, 1.0)
        recent[..., place] += np.where(usable, step * (square - recent[..., place]), 0.0)
    recent[..., 0] = np.where(usable, astray, recent[..., 0])


def contrary(recent: Array, known: Flags, usable: Flags) -> Flags:
    """Who of those that spoke is astray where the others are not, [E, W].

    Args:
        recent: as `remember` leaves it; known: [E, W] who has a say; usable: [E, W] who said something.
    """
    astray = recent[..., 0] > 0.0
    return usable & astray & minority(astray, known) & others_tell(known)


def _contradicts(directions: Directions, sums: Array, scatter: Array) -> Flags:
    """Whether sums [E, W, D] say that the fit is wrong, in a workload or in all of an engine's together, [E, W]."""
    v, whole = sums[..., 1], sums[..., :2].sum(axis=1, keepdims=True)
    together = (v * scatter).sum(axis=1, keepdims=True) / np.maximum(whole[..., 1], 1e-9)
    found = np.broadcast_to(_beyond(*level_of(whole), together, LEAST_OFFSET), v.shape)
    for one in directions.estimates(sums):
        found = found | _beyond(one.value, one.precision, scatter, one.least)
    return found


def _beyond(value: Array, precision: Array, scatter: Array, least: float) -> Flags:
    noise = np.sqrt(np.maximum(scatter, 1.0) / precision)
    found: Flags = np.abs(value) > np.maximum(ASTRAY_SIGMAS * noise, least)
    return found
