from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import LEVELS, Fleet, Traffic
from tests.learner.test_rollouts import rounds_until_learnt

from accord.learner.pair_learner import TICK_MS
from accord.learner.turns import ROUNDS, SILENT_MS, heard

SIZE, BOUND = 10, 0
AFTER = 8
MINUTE_MS = 60_000
CHANGED = tuple(level - 1.0 for level in LEVELS)


def routed(fleet: Fleet, engines: int, level: tuple[float, ...], leak: float = 0.0, length: float = 40.0) -> None:
    """A round of a fleet whose router gives one workload to some engines and, but for leaks, the rest to the others."""
    for index in range(SIZE):
        share = (1.0, leak, leak) if index < engines else (leak, 1.0, 1.0)
        fleet.speak(index, Traffic(level=level, share=share, length=length))


@cache
def learnt(engines: int, leak: float) -> tuple[tuple[float, ...], int, list[bool]]:
    """How far the workload moved after it changed, what was set aside, and who had a say before."""
    fleet = Fleet(SIZE, 16, 1)
    if engines < SIZE:
        fleet.run(Traffic(), 10)
        # what was running ends
        routed(fleet, engines, LEVELS, leak, length=1.0)
    for number in range(2 * int(ROUNDS)):
        # three engines or fewer wait for the clock
        if engines <= 3 and number <= int(SILENT_MS) // MINUTE_MS:
            fleet.tick += MINUTE_MS // TICK_MS
        routed(fleet, engines, LEVELS, leak)
    has_say = heard(fleet.learner.learnt.state.influence.turns)[:, BOUND].tolist()
    before, moved = fleet.probabilities()[BOUND], []
    for _ in range(AFTER):
        routed(fleet, engines, CHANGED, leak)
        moved.append(float(np.abs(fleet.probabilities()[BOUND] - before).mean()))
    return tuple(moved), fleet.learner.counters.aside, has_say


@pytest.mark.parametrize("engines", [1, 2, 3, 5])
def test_a_workload_bound_to_few_engines_is_learnt_when_it_changes(engines: int) -> None:
    """Engines that a router no longer gives a workload lose their say in it, and keep it in the others."""
    everybody, _, _ = learnt(SIZE, 0.0)
    moved, aside, has_say = learnt(engines, 0.0)
    assert has_say == [True] * engines + [False] * (SIZE - engines)
    assert rounds_until_learnt(moved, everybody[-1]) <= 3
    assert aside == 0


@pytest.mark.parametrize(("engines", "leak"), [(2, 0.004), (2, 0.05), (3, 0.05)])
def test_a_router_that_leaks_freezes_nothing(engines: int, leak: float) -> None:
    """Engines with a trickle of a workload do not hold up those that have it for more than a round."""
    everybody, _, _ = learnt(SIZE, 0.0)
    moved, _, has_say = learnt(engines, leak)
    assert all(has_say[:engines])
    assert rounds_until_learnt(moved, everybody[-1]) <= 2
