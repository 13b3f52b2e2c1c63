from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import KEYS, Fleet, Traffic
from tests.learner.test_lone_liar import LIAR

from accord.learner.basis import Array

ROUNDS = 8


@dataclass
class Lie(Traffic):
    """Traffic as one engine tells it, off by some log-odds where the features or positions say."""

    kind: str = ""
    size: float = 0.0

    def log_odds(self, features: Array, workload: np.ndarray) -> Array:
        """What the liar's labels follow."""
        off = {
            "position": np.broadcast_to([1.0, -1.0, 1.0, -1.0], features.shape),
            "first": np.broadcast_to([-1.0, 0.6, 0.6, 0.6], features.shape),
            "shape": np.where((features >= 0.5) & (features < 3.0), -1.0, 1.0),
            "slope": (features - 2.0) / 3.0,
            "level": np.ones_like(features),
            "left": np.where(features < 0.0, features + 0.75, 0.0),
        }[self.kind]
        out: Array = super().log_odds(features, workload) + self.size * off
        return out


@cache
def patient() -> Fleet:
    """Ten engines that have behaved well for a while."""
    fleet = Fleet(10, 16, 0)
    fleet.run(Traffic(), 24)
    return fleet


def served(lie: Lie | None, often: int = 1) -> tuple[Array, Fleet]:
    """What is served after each round while one engine lies, and speaks after each of so many others."""
    fleet, found = copy.deepcopy(patient()), []
    for _ in range(ROUNDS):
        for index in range(fleet.size):
            for _ in range(often - 1 if lie and index != LIAR else 0):
                fleet.speak(LIAR, lie or Traffic())
            fleet.speak(index, lie if lie and index == LIAR else Traffic())
            found.append(fleet.probabilities())
    return np.stack(found), fleet


@cache
def honest() -> Array:
    """What is served when nobody lies."""
    return served(None)[0]


LIES = [
    *itertools.product(("slope", "position", "first", "shape"), (1.0, 3.0), (1,)),
    *itertools.product(("slope", "position", "shape"), (1.0,), (2,)),
    ("level", 3.0, 2),
]


@pytest.mark.parametrize(("kind", "size", "often"), LIES)
def test_a_lie_that_cancels_moves_nobody_by_a_hundredth(kind: str, size: float, often: int) -> None:
    """Errors that cancel in level or slope are found in another direction, however often the engine speaks."""
    found, fleet = served(Lie(kind=kind, size=size), often)
    assert np.abs(found - honest()).max() < 0.01
    assert fleet.alarms == [0] * len(KEYS)
    recent = fleet.learner.learnt.state.influence.recent
    assert recent[LIAR, :, 0].any()
    assert not np.delete(recent, LIAR, axis=0)[:, :, 0].any()


@pytest.mark.parametrize(("kind", "size"), [("position", 0.2), ("shape", 0.2), ("slope", 0.2), ("left", 3.0)])
def test_a_lie_without_a_direction_moves_nobody_far(kind: str, size: float) -> None:
    """What is material in no direction, or lies before the first knot alone, has its share to move others by."""
    found, fleet = served(Lie(kind=kind, size=size), 2)
    assert np.abs(found - honest()).max() < (0.03 if kind == "left" else 0.015)
    assert fleet.alarms == [0] * len(KEYS)
