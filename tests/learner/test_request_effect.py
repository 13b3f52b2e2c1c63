from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from tests.learner.strategies import seeds, some

from accord.learner.basis import sigmoid, softplus
from accord.learner.request_effect import DISCOUNT, VARIANCE_GRID, RequestEffects


@given(seeds, st.integers(1, 5), st.integers(1, 20))
@some
def test_recursions_match_a_scalar_loop(seed: int, slots: int, steps: int) -> None:
    """R and V are the sums over all steps, each label before the last m counting q for every label after it."""
    rng = np.random.default_rng(seed)
    effects, history = RequestEffects(slots), [[] for _ in range(slots)]
    for _ in range(steps):
        taken = rng.permutation(slots)[: rng.integers(0, slots + 1)]
        labels = rng.integers(0, 6, len(taken))
        residual, curvature = rng.normal(size=len(taken)), rng.random(len(taken))
        effects.update(taken, labels, residual, curvature)
        for place, slot in enumerate(taken):
            history[slot].append((labels[place], residual[place], curvature[place]))
    for slot, events in enumerate(history):
        R = V = 0.0
        for m, r, v in events:
            R, V = DISCOUNT**m * R + r, DISCOUNT**m * V + v
        assert effects.residual[slot] == pytest.approx(R, rel=1e-12, abs=1e-12)
        assert effects.curvature[slot] == pytest.approx(V, rel=1e-12, abs=1e-12)


@given(seeds)
@some
def test_shift_is_the_shrunken_one_step_estimate(seed: int) -> None:
    """u = R / (V + 1 / s2), 0 where s2 is 0, and the grid holds the same numbers column by column."""
    rng = np.random.default_rng(seed)
    effects = RequestEffects(4)
    effects.update(np.arange(4), np.ones(4, dtype=np.int64), rng.normal(size=4), rng.random(4))
    slots = np.array([3, 0, 2])
    grid = effects.shift_grid(slots)
    for column, s2 in enumerate(VARIANCE_GRID):
        expected = effects.residual[slots] / (effects.curvature[slots] + 1.0 / s2) if s2 else np.zeros(3)
        assert grid[:, column] == pytest.approx(expected, rel=1e-12)
        assert np.array_equal(effects.shift(slots, s2), grid[:, column])
    mixed = effects.shift(slots, np.array([0.0, 0.1, 0.4]))
    assert mixed.tolist() == [grid[0, 0], grid[1, 3], grid[2, 5]]


@given(seeds)
@some
def test_shift_is_close_to_the_posterior_mode(seed: int) -> None:
    """One Newton step from 0 lands near the mode of the random intercept's posterior when few labels speak."""
    rng = np.random.default_rng(seed)
    z, s2 = rng.normal(0.5, 1.0, 12), 0.1
    y = (rng.random(12) < sigmoid(z)).astype(float)
    p = sigmoid(z)
    effects = RequestEffects(1)
    effects.update(
        np.zeros(1, dtype=np.intp), np.array([12]), np.array([(y - p).sum()]), np.array([(p * (1 - p)).sum()])
    )

    def loss(u: float) -> float:
        return float(softplus((1.0 - 2.0 * y) * (z + u)).sum() + u * u / (2.0 * s2))

    mode = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x
    assert effects.shift(np.zeros(1, dtype=np.intp), s2)[0] == pytest.approx(mode, abs=0.05)


def test_reset_forgets_a_request() -> None:
    """A slot that another request takes knows nothing of the one before; other slots are untouched."""
    effects = RequestEffects(2)
    effects.update(np.array([0, 1]), np.array([1, 1]), np.array([1.0, 1.0]), np.array([0.2, 0.2]))
    effects.reset([0])
    assert effects.residual.tolist() == [0.0, 1.0]
    assert effects.curvature.tolist() == [0.0, 0.2]


def test_the_grid_begins_with_off() -> None:
    """The first variance of the grid is 0, so that no request effect is always among the choices."""
    assert VARIANCE_GRID[0] == 0.0
    assert list(VARIANCE_GRID) == sorted(VARIANCE_GRID)
