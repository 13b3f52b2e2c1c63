"""Whether what changes is the traffic or one engine: who contradicts the fit just now, and how many do.

An alarm of drift makes a pair forget nearly all that it knew, so no single engine may cause one. Where at least five
engines have a say, drift does not hear an engine whose newest labels contradict the fit, as long as no more than a
quarter of the engines does that. When more do, it is the traffic, and all of them are heard: a change of the traffic is
noticed as soon as a quarter of the fleet has reported it.

An engine is astray when its labels of one tick, or its last few hundred, are off in level or slope by LEAST_* and by
ASTRAY_SIGMAS standard errors, in one workload or in all together. That is less than an alarm takes, so that no engine
causes one without being astray before.
"""

from __future__ import annotations

import numpy as np

from .agreement import LEAST_SLOPE, level_of, slope_of
from .basis import Array
from .outlier import LEAST_ENGINES, Flags, minority

RECENT_LABELS = 500.0
"""Own labels after which an engine's newest ones have faded to 1 / e; a tick's own are always whole."""

ASTRAY_SIGMAS = 3.5
LEAST_OFFSET = 0.2
"""In log-odds; `drift.JUMP_LOG_ODDS`, because the offset of a block is a mean of those of its engines."""


def remember(recent: Array, usable: Flags, labels: Array, residuals: Array, scatter: Array) -> None:
    """Takes in what engines said in a tick, and who of them is astray.

    Args:
        recent: [E, W, 6], changed in place: 1.0 where what an engine said last contradicts the fit, and the faded sums
            of r, v, r f, v f, v f f.
        usable: [E, W] who said something of what; labels: [E, W].
        residuals: [E, W, 5] the tick's sums; scatter: [W], as `Said` has it.
    """
    new = np.where(usable[..., None], residuals, 0.0)
    recent[..., 1:] = recent[..., 1:] * np.exp(-np.where(usable, labels, 0.0) / RECENT_LABELS)[..., None] + new
    astray = _contradicts(new, scatter) | _contradicts(recent[..., 1:], scatter)
    recent[..., 0] = np.where(usable, astray, recent[..., 0])


def withheld(recent: Array, known: Flags, usable: Flags) -> Flags:
    """Whom drift does not hear, [E, W], of those that spoke.

    Args:
        recent: as `remember` leaves it; known: [E, W] who has a say; usable: [E, W] who said something.
    """
    astray = recent[..., 0] > 0.0
    others = known.sum(axis=0) - known
    found: Flags = usable & astray & minority(astray, known) & (others >= LEAST_ENGINES - 1)
    return found


def _contradicts(sums: Array, scatter: Array) -> Flags:
    """Whether sums [E, W, 5] say that the fit is wrong, in a workload or in all of an engine's together, [E, W]."""
    v = sums[..., 1]
    whole = sums.sum(axis=1, keepdims=True)
    together = (v * scatter).sum(axis=1, keepdims=True) / np.maximum(v.sum(axis=1, keepdims=True), 1e-9)
    level = _beyond(*level_of(sums), scatter, LEAST_OFFSET) | _beyond(*level_of(whole), together, LEAST_OFFSET)
    return level | _beyond(*slope_of(sums), scatter, LEAST_SLOPE)


def _beyond(value: Array, precision: Array, scatter: Array, least: float) -> Flags:
    noise = np.sqrt(np.maximum(scatter, 1.0) / precision)
    found: Flags = np.abs(value) > np.maximum(ASTRAY_SIGMAS * noise, least)
    return found
