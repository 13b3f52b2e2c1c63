from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import LEVELS, Fleet, Traffic

from accord.learner.pair_learner import TICK_MS
from accord.learner.turns import ROUNDS, SILENT_MS

CHANGED = Traffic(level=tuple(level - 1.0 for level in LEVELS))
SHARE = 0.8
"""Of the change, that has to be learnt."""

AFTER = 8
MINUTE_MS = 60_000
LAPS = int(ROUNDS)
LONG = 8
"""Rounds of a deployment that silence the names of the one before."""


def renamed(fleet: Fleet, deployment: int) -> None:
    """A deployment: the same number of engines under names and boots that nobody has seen."""
    for place, engine in enumerate(fleet.engines):
        engine.name, engine.seed, engine.seq = f"pod-{deployment}-{place}/0", 1000 * deployment + place + 7, 0


@cache
def deployed(deployments: int, size: int, rounds: int) -> Fleet:
    """A fleet that was deployed anew so often, and whose last engines have reported for a while."""
    fleet = Fleet(size, 16, 1)
    for deployment in range(deployments + 1):
        renamed(fleet, deployment)
        fleet.run(Traffic(), rounds)
    if size == 1 or rounds < LONG:
        wait_for_the_clock(fleet)
    else:
        fleet.run(Traffic(), LAPS - rounds)
    return fleet


def wait_for_the_clock(fleet: Fleet) -> None:
    """A quarter of an hour in which those that live speak every minute."""
    for _ in range(int(SILENT_MS) // MINUTE_MS + 1):
        fleet.tick += MINUTE_MS // TICK_MS
        fleet.run(Traffic(), 1, steps=2)


@cache
def learnt(deployments: int, size: int, rounds: int) -> tuple[tuple[float, ...], int]:
    """How far served probabilities moved in each round after the traffic changed, and what was set aside."""
    fleet = deployed(deployments, size, rounds)
    before, moved = fleet.probabilities(), []
    for _ in range(AFTER):
        fleet.run(CHANGED, 1)
        moved.append(float(np.abs(fleet.probabilities() - before).mean()))
    return tuple(moved), fleet.learner.counters.aside


def rounds_until_learnt(moved: tuple[float, ...], wanted: float) -> int:
    """Rounds until so much of a change is served."""
    return next((number for number, far in enumerate(moved, 1) if far >= SHARE * wanted), AFTER + 1)


@pytest.mark.parametrize(("deployments", "rounds"), [(3, LONG), (6, LONG), (3, 3)])
def test_a_change_is_learnt_as_fast_after_many_deployments(deployments: int, rounds: int) -> None:
    """Ten engines under the fourth or seventh set of names learn a change within two rounds of when the first would.

    Where so many names came within a few rounds that ten are no third of them, a quarter of an hour has to pass.
    """
    fresh, _ = learnt(0, 10, rounds)
    moved, aside = learnt(deployments, 10, rounds)
    assert rounds_until_learnt(moved, fresh[-1]) <= rounds_until_learnt(fresh, fresh[-1]) + 2
    assert abs(moved[-1] - fresh[-1]) < 0.02
    assert aside == 0


@pytest.mark.parametrize("deployments", [5, 9])
def test_a_single_engine_is_not_contradicted_by_its_former_names_for_long(deployments: int) -> None:
    """One engine that had more than four names before learns a change, once they have been silent for long enough."""
    fresh, _ = learnt(0, 1, 6)
    moved, aside = learnt(deployments, 1, 6)
    assert rounds_until_learnt(moved, fresh[-1]) <= rounds_until_learnt(fresh, fresh[-1]) + 2
    assert aside == 0


@pytest.mark.parametrize("deployments", [0, 3, 6])
def test_engines_that_are_gone_do_not_report(deployments: int) -> None:
    """As many engines report a workload as live, although the records of those that are gone still hold labels."""
    influence = deployed(deployments, 10, LONG).learner.learnt.state.influence
    assert len(influence.engines) == min(10 * (deployments + 1), 64)
    for row in range(3):
        assert influence.reporting(row) == 10
        if deployments:
            assert np.count_nonzero(influence.records[:, row, 0]) > 10


def test_engines_that_are_gone_take_no_share() -> None:
    """Half the fleet counts for as many equal shares of the memory as there are engines left, not as there were."""
    fleet = Fleet(24, 16, 2)
    fleet.run(Traffic(), 2)
    fleet.engines = fleet.engines[:5]
    wait_for_the_clock(fleet)
    fleet.run(Traffic(), 10)
    state = fleet.learner.learnt.state
    assert state.influence.reporting(0) == 5
    # of 24 engines each would count for 1.5 / 24 of a memory at most; of 5 for 1.5 / 5
    counts = state.influence.records[:5, :, 0]
    said = state.arrays["n"].sum(axis=1) - state.influence.records[5:, :, 0].sum(axis=0)
    assert counts.sum(axis=0) == pytest.approx(said, rel=0.2)


def test_what_changed_before_a_deployment_was_complete_is_learnt_when_it_is() -> None:
    """A change that comes with a deployment, engine by engine, is learnt within the rounds that silence the old."""
    fleet = Fleet(10, 16, 3)
    for deployment in range(4):
        renamed(fleet, deployment)
        fleet.run(Traffic(), LONG)
    before = fleet.probabilities()
    renamed(fleet, 4)
    fleet.run(CHANGED, LAPS + 6)
    moved = float(np.abs(fleet.probabilities() - before).mean())
    assert moved > SHARE * learnt(0, 10, LONG)[0][-1]
