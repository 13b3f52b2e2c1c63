"""Which engines have a say in a workload: those that have not been silent in it while others spoke.

Names outlive engines: where every deployment gives new ones, a few deployments leave more names than there are
engines. And a router that binds workloads to engines leaves engines that once had a few labels of everything. By what
those said, everything that changed afterwards would be contradicted. So an engine has no say in a workload

- after ROUNDS laps in which it said nothing. A lap is over once a third of those that have a say, and three engines at
  least, have spoken in it: one or two names do not silence the others, however fast they talk;
- after SILENT_MS in which others spoke: fewer than three end no lap. A pause of everybody counts as PAUSE_MS at most,
  so that after a quiet night the fleet still has its say;
- while its flow of labels is less than LEAST_FLOW of what all but a quarter of the others stay below: a router that
  leaks leaves trickles. What fewer engines than that have is no measure, or a few would drown the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .basis import Array
from .outlier import MINORITY, Flags

ROUNDS = 10.0
LEAST_LAP = 3
SILENT_MS = 900_000.0
PAUSE_MS = 60_000.0
FLOW_MS = 300_000.0
"""Time after which labels have faded from the flow to 1 / e."""

LEAST_FLOW = 0.05

TURNS = 4
"""Of an engine in a workload, when it spoke last: the lap, the time with pauses cut short, unix milliseconds, and its
flow of labels."""


def speak(turns: Array, labels: Array, at_ms: float) -> Flags:
    """Takes in who spoke in a tick; returns who had spoken in this lap before, and speaks on alone, [E, W].

    Args:
        turns: [E, W, 4], changed in place; labels: [E, W], 0 where an engine said nothing; at_ms: the tick's end.

    >>> turns = np.zeros((3, 1, 4))
    >>> [bool(speak(turns, np.eye(3)[:, [place]], 1000.0 * place).any()) for place in (0, 1, 1, 2)]
    [False, False, True, False]
    >>> turns[:, 0, 0].tolist()
    [1.0, 1.0, 2.0]
    """
    spoke, (lap, time, ms, flow) = labels > 0.0, np.moveaxis(turns, -1, 0)
    now = np.maximum(lap.max(axis=0, initial=0.0), 1.0)
    last_ms = ms.max(axis=0, initial=0.0)
    pause = np.where(last_ms > 0.0, np.clip(at_ms - last_ms, 0.0, PAUSE_MS), 0.0)
    time_now = time.max(axis=0, initial=0.0) + pause
    again: Flags = spoke & (lap == now)
    kept = flow * np.exp(-(time_now - time) / FLOW_MS)
    new = np.stack(np.broadcast_arrays(now, time_now, at_ms, kept + labels), axis=-1)
    turns[:] = np.where(spoke[..., None], new, turns)
    say = heard(turns)
    enough = np.maximum(np.count_nonzero(say, axis=0), 3 * LEAST_LAP)
    over = 3 * np.count_nonzero(say & (turns[..., 0] == now), axis=0) >= enough
    # Who ends a lap has spoken in the next one.
    turns[..., 0] += spoke & over
    # So many at once are a lap of their own: a fleet that speaks in every tick is heard in every tick.
    again &= 3 * np.count_nonzero(say & spoke, axis=0) < enough
    return again


def heard(turns: Array) -> Flags:
    """Who has a say in what, [E, W].

    Args:
        turns: [E, W, 4], as `speak` leaves it.

    >>> at = 1e6
    >>> heard(np.array([[[lap, at, at, 100.0]] for lap in (0, 1, 2, 12)]))[:, 0].tolist()
    [False, False, True, True]
    """
    lap, time, _, flow = np.moveaxis(turns, -1, 0)
    now = time.max(axis=0, initial=0.0)
    found: Flags = (lap > 0.0) & (lap >= lap.max(axis=0, initial=0.0) - ROUNDS) & (time >= now - SILENT_MS)
    if len(turns) < 2:
        return found
    flow = np.where(found, flow * np.exp((time - now) / FLOW_MS), 0.0)
    louder = np.maximum(MINORITY * found.sum(axis=0), 1.0).astype(np.intp)
    usual = np.take_along_axis(np.sort(flow, axis=0)[::-1], louder[None], axis=0)
    return found & (flow >= LEAST_FLOW * usual)


def first_turns(seen_ms: npt.NDArray[np.int64], said: Array) -> Array:
    """Turns of engines of which nothing but this is known: all in one lap, those that are gone as long as they are.

    Args:
        seen_ms: [E], when each spoke last; said: [E, W], what stands for its flow until it speaks; 0 for nothing.

    >>> first_turns(np.array([4_000, 9_000]), np.array([[0.0], [50.0]])).tolist()
    [[[0.0, 0.0, 0.0, 0.0]], [[1.0, 5000.0, 9000.0, 50.0]]]
    """
    seen = seen_ms[:, None].astype(np.float64)
    turns = np.stack(np.broadcast_arrays(1.0, seen - seen.min(initial=np.inf), seen, said), axis=-1)
    known: Array = np.where(said[..., None] > 0.0, turns, 0.0)
    return known
