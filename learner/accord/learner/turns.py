"""Which engines still have a say: those that have not been silent while the others spoke.

Names outlive engines: where every deployment gives new ones, a few deployments leave more names than there are
engines, and by what those said before they went, everything that changed afterwards would be contradicted.

Time tells little: a fleet is silent for hours when nobody asks it anything. So silence is counted in turns. A turn is
what one engine said in one tick; one that speaks on and on adds none until another has spoken, so that nobody silences
the others by talking fast. Only who talks alone has to wait for the clock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .outlier import LEAST_ENGINES, Flags

ROUNDS = 10
"""An engine has no say once those that do have spoken so often, on average, since its last word."""

SILENT_MS = 900_000
"""Nor after so long, whoever spoke since."""


def next_turn(turn: npt.NDArray[np.int64], speakers: npt.NDArray[np.intp]) -> int:
    """The turn of those that speak in a tick.

    Args:
        turn: int64 [E], when each spoke last; speakers: places of those that speak now.

    >>> next_turn(np.array([7, 5, 6]), np.array([1, 2])), next_turn(np.array([7, 5, 6]), np.array([0]))
    (9, 7)
    """
    now = int(turn.max(initial=0))
    alone = len(speakers) == 1 and int(turn[speakers[0]]) == now
    return now + (0 if alone and now else len(speakers))


def heard(turn: npt.NDArray[np.int64], seen_ms: npt.NDArray[np.int64]) -> Flags:
    """Who has a say, [E].

    Args:
        turn, seen_ms: int64 [E], when each spoke last, in turns and in unix milliseconds.

    >>> heard(np.array([1, 120, 119, 118, 117, 116, 115]), np.zeros(7, dtype=np.int64)).tolist()
    [False, True, True, True, True, True, True]
    """
    found = np.zeros(len(turn), dtype=np.bool_)
    latest = seen_ms >= int(seen_ms.max(initial=0)) - SILENT_MS
    now, said = int(turn.max(initial=0)), 0
    for place in np.argsort(-turn, kind="stable").tolist():
        if latest[place] and now - int(turn[place]) <= ROUNDS * max(said, LEAST_ENGINES):
            found[place] = True
            said += 1
    return found
