from __future__ import annotations

import copy
import itertools
from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import KEYS, LEVELS, Fleet, Traffic

from accord.learner.basis import Array

LIAR = 3
STEPS = list(itertools.product((0.2, 0.5, 1.0), (10, 15, 20)))
CHANGED = Traffic(level=tuple(level - 1.0 for level in LEVELS))


@cache
def patient(size: int, seed: int = 2) -> Fleet:
    """A fleet in which everybody has behaved well for a while."""
    fleet = Fleet(size, 16, seed)
    fleet.run(Traffic(), 12 if size > 10 else 24)
    assert fleet.alarms == [0] * len(KEYS)
    return fleet


def again(size: int, seed: int = 2) -> Fleet:
    """The same fleet once more, to be treated otherwise."""
    return copy.deepcopy(patient(size, seed))


def served_in(fleet: Fleet, flip: float, steps: int, rounds: int = 2) -> Array:
    """What is served after each round of each engine while one of them flips labels."""
    fleet.engines[LIAR].flip = flip
    served = []
    for _ in range(rounds):
        for index in range(fleet.size):
            fleet.speak(index, Traffic(), steps if index == LIAR else 20)
            served.append(fleet.probabilities())
    return np.stack(served)


@cache
def honest(size: int, steps: int) -> Array:
    """What is served when nobody lies."""
    return served_in(again(size), 0.0, steps)


@pytest.mark.parametrize(("flip", "steps"), STEPS)
def test_one_that_begins_to_lie_causes_no_alarm(flip: float, steps: int) -> None:
    """Of ten patient engines one that flips labels in two rounds of its own moves nobody by a hundredth."""
    fleet = again(10)
    moved = np.abs(served_in(fleet, flip, steps) - honest(10, steps)).max()
    assert fleet.alarms == [0] * len(KEYS)
    assert moved < 0.01


def test_a_liar_that_speaks_on_and_on_causes_no_alarm() -> None:
    """Twenty lying rounds without a word of the others in between move nobody by a hundredth."""
    fleet = again(10)
    before = fleet.probabilities()
    fleet.engines[LIAR].flip = 0.5
    for _ in range(20):
        fleet.speak(LIAR, Traffic(), 10)
        assert np.abs(fleet.probabilities() - before).max() < 0.01
    assert fleet.alarms == [0] * len(KEYS)
    assert fleet.learner.counters.aside > 0


@pytest.mark.parametrize("size", [5, 10, 20])
def test_what_the_whole_fleet_sees_is_alarmed_at_once(size: int) -> None:
    """A change of the traffic shortens every workload's memory within two rounds of the fleet."""
    fleet = again(size)
    fleet.run(CHANGED, 2)
    assert min(fleet.alarms) >= 1


@pytest.mark.parametrize(("size", "seeing"), [(5, 2), (10, 4), (20, 7)])
def test_what_a_third_of_the_fleet_sees_is_heard(size: int, seeing: int) -> None:
    """More than a quarter of the engines is the traffic: what only they see causes an alarm within four rounds."""
    fleet = again(size)
    for _ in range(4):
        for index in range(size):
            fleet.speak(index, CHANGED if index < seeing else Traffic())
    assert max(fleet.alarms) >= 1


@pytest.mark.parametrize("size", [5, 10, 20])
def test_what_a_fifth_of_the_fleet_sees_is_not(size: int) -> None:
    """Fewer than a quarter of the engines cause no alarm, however long they go on."""
    fleet = again(size)
    for _ in range(6):
        for index in range(size):
            fleet.speak(index, CHANGED if index < size // 5 else Traffic())
    assert fleet.alarms == [0] * len(KEYS)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_of_a_few_engines_everybody_is_heard(size: int) -> None:
    """Fewer than five cannot be told apart: what one of them sees is an alarm, as it always was."""
    fleet = again(size)
    for _ in range(3):
        for index in range(size):
            fleet.speak(index, CHANGED if index == 0 else Traffic(), 60)
    assert max(fleet.alarms) >= 1


def test_one_that_recovers_is_heard_when_the_traffic_changes() -> None:
    """What an engine said in error is forgotten: a change that the fleet sees later is alarmed for all workloads."""
    fleet = again(10)
    served_in(fleet, 1.0, 50)
    fleet.engines[LIAR].flip = 0.0
    fleet.run(Traffic(), 12)
    influence = fleet.learner.learnt.state.influence
    assert influence.recent[LIAR, :, 0].tolist() == [0.0] * len(KEYS)
    fleet.run(CHANGED, 2)
    assert min(fleet.alarms) >= 1
