from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import seeds, some

from accord.learner.request_effect import VARIANCE_GRID
from accord.learner.variance_choice import HYSTERESIS_NATS, choose_variance, expected_variance

G = len(VARIANCE_GRID)


@given(seeds, st.integers(1, 6))
@some
def test_a_choice_is_stable(seed: int, workloads: int) -> None:
    """Choosing again from the same losses changes nothing, and every index lies in the grid."""
    rng = np.random.default_rng(seed)
    loss, current = rng.normal(100.0, 5.0, (workloads, G)), rng.integers(0, G, workloads)
    once = choose_variance(loss, current)
    assert np.array_equal(choose_variance(loss, once), once)
    assert np.all((once >= 0) & (once < G))


@given(seeds, st.floats(0.0, 1e6))
@some
def test_only_differences_of_loss_matter(seed: int, base: float) -> None:
    """A constant added to every column changes no choice."""
    rng = np.random.default_rng(seed)
    loss, current = np.round(rng.normal(0.0, 5.0, (3, G)), 2), rng.integers(0, G, 3)
    assert np.array_equal(choose_variance(loss + np.round(base), current), choose_variance(loss, current))


def test_a_small_gain_does_not_change_the_choice() -> None:
    """Another variance is served only when it gains more than the hysteresis."""
    loss = np.full((1, G), 50.0)
    loss[0, 3] -= HYSTERESIS_NATS
    assert choose_variance(loss, np.array([0])).tolist() == [0]
    loss[0, 3] -= 0.01
    assert choose_variance(loss, np.array([0])).tolist() == [3]


def test_a_rare_workload_follows_its_siblings() -> None:
    """A workload without labels takes the variance that its siblings prefer; a rich one takes its own."""
    loss = np.zeros((3, G))
    loss[0] = 1000.0 - np.array([0, 10, 40, 60, 50, 30])
    loss[1] = 9000.0 - np.array([90, 60, 40, 20, 10, 0])
    chosen = choose_variance(loss, np.full(3, 1))
    assert chosen[0] == 3
    assert chosen[1] == 0


def test_nothing_known_keeps_what_is_in_force() -> None:
    """Without a label nothing changes, also for no workloads at all."""
    assert choose_variance(np.zeros((2, G)), np.array([0, 4])).tolist() == [0, 4]
    assert choose_variance(np.zeros((0, G)), np.zeros(0, dtype=np.int64)).tolist() == []


def test_the_expected_variance_owns_to_not_knowing() -> None:
    """Without labels it is the middle of the grid; with many, the variance that they speak for."""
    nothing, plenty = np.zeros((1, G)), 1e4 + 50.0 * np.abs(np.arange(G)[None] - 3.0)
    assert expected_variance(nothing) == pytest.approx(0.2)
    assert expected_variance(plenty) == pytest.approx(VARIANCE_GRID[3])
