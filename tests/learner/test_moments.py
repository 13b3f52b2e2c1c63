from __future__ import annotations

import numpy as np
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import Engine, dense_hessian, engines, row, seeds, some

from accord.learner.basis import SplineBasis
from accord.learner.irls import LogisticLoss, fit_logistic
from accord.learner.moments import Moments


@given(engines(), st.integers(1, 4))
@some
def test_gradient_elsewhere_is_the_quadratic_models(engine: Engine, steps: int) -> None:
    """g(new) = g(old) - H (new - old) with the dense arrowhead Hessian."""
    summary, basis = engine.round(steps), engine.basis
    m, rng = summary.moments, np.random.default_rng(engine.seed)
    others = [row(rng, engine.k, basis) for _ in engine.keys]
    slopes, intercepts = np.stack([o.slopes for o in others]), np.stack([o.intercepts for o in others])
    g0, g1 = m.gradient_at(basis, summary.slopes, summary.intercepts, slopes, intercepts)
    for w in range(len(engine.keys)):
        step = np.append(slopes[w] - summary.slopes[w], intercepts[w] - summary.intercepts[w])
        expected = np.append(m.g0[w], m.g1[w]) - dense_hessian(m, basis, w) @ step
        np.testing.assert_allclose(np.append(g0[w], g1[w]), expected, rtol=1e-9, atol=1e-8)
        there = m.gradient_at(basis, summary.slopes, summary.intercepts, summary.slopes, summary.intercepts)
        assert np.array_equal(there[1], m.g1)


@given(seeds, st.sampled_from([(), (0.0, 2.0)]))
@some
def test_one_newton_step_is_the_dense_one_on_raw_labels(seed: int, knots: tuple[float, ...]) -> None:
    """theta + H^-1 g from the sums is the Newton step of the regression on the raw labels."""
    rng, basis, k = np.random.default_rng(seed), SplineBasis(knots), 2
    engine = Engine(seed, k, knots, keys=("code:greedy",), requests=40)
    truth, f = engine.truth[0], rng.normal(1.0, 2.0, (40, k))
    accepted = np.cumprod(rng.random(f.shape) < truth.probability(basis, f), axis=1).sum(axis=1)
    a, zero = engine.accumulator, np.zeros(40, dtype=np.intp)
    a.observe(f, zero, np.arange(40), accepted, np.full(40, k))
    use = np.arange(k) <= accepted[:, None]
    place, position = np.nonzero(use)
    y = (position < accepted[place]).astype(float)
    design = np.concatenate([basis.expand(f[place, position]), np.eye(k)[position]], axis=1)
    theta = np.append(a.slopes[0], a.intercepts[0])
    p = 1.0 / (1.0 + np.exp(-design @ theta))
    ridge = 1e-3 * np.eye(len(theta))
    dense = theta + np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]) + ridge, design.T @ (y - p))
    m = a.moments
    ours = theta + np.linalg.solve(dense_hessian(m, basis, 0) + ridge, np.append(m.g0[0], m.g1[0]))
    np.testing.assert_allclose(ours, dense, rtol=1e-7, atol=1e-8)


def test_newton_steps_from_moments_end_at_the_maximum_likelihood() -> None:
    """Repeating the step at its own result gives statsmodels' coefficients, and the module's own exact regression's."""
    rng, basis, k = np.random.default_rng(5), SplineBasis((0.0, 2.0)), 3
    engine = Engine(5, k, basis.knots, keys=("code:greedy",), requests=900)
    f = rng.normal(1.0, 2.0, (900, k))
    accepted = np.cumprod(rng.random(f.shape) < engine.truth[0].probability(basis, f), axis=1).sum(axis=1)
    place, position = np.nonzero(np.arange(k) <= accepted[:, None])
    y = (position < accepted[place]).astype(float)
    batch = fit_logistic(LogisticLoss(basis, k, f[place, position], position, y)).require()
    design = np.concatenate([basis.expand(f[place, position]), np.eye(k)[position]], axis=1)
    glm = sm.GLM(y, design, family=sm.families.Binomial()).fit(tol=1e-12)
    a, zero, F = engine.accumulator, np.zeros(900, dtype=np.intp), basis.size
    a.working_variance = 0.0
    for _ in range(8):
        a.observe(f, zero, np.arange(900), accepted, np.full(900, k))
        m = a.drain()
        step = np.linalg.solve(dense_hessian(m, basis, 0), np.append(m.g0[0], m.g1[0]))
        a.slopes[0] += step[:F]
        a.intercepts[0] += step[F:]
    np.testing.assert_allclose(np.append(a.slopes[0], a.intercepts[0]), glm.params, atol=1e-7)
    np.testing.assert_allclose(a.slopes[0], batch.slopes, atol=1e-8)
    np.testing.assert_allclose(a.intercepts[0], batch.intercepts, atol=1e-8)


def test_adding_a_row_twice_counts_twice() -> None:
    """Two workloads added to one row add up, and a row taken is a copy."""
    m = Engine(1).round(5).moments
    total = Moments.zeros(3, 3, SplineBasis((0.0, 2.0)))
    total.add_at(np.array([2, 2]), m)
    for name, array in total.arrays().items():
        np.testing.assert_allclose(array[2], m.arrays()[name].sum(axis=0))
        assert not array[:2].any()
    taken = total.take([2])
    taken.n[:] = -1.0
    assert total.n.min() == 0.0


def test_shapes_are_those_of_the_arrays() -> None:
    """The declared shape of every sum is the one it has, and a device needs 21 numbers for F = 4, 6 for F = 1."""
    for knots, size in (((0.0, 2.0, 4.0), 21), ((), 6)):
        basis = SplineBasis(knots)
        zeros = Moments.zeros(2, 5, basis)
        assert {name: array.shape for name, array in zeros.arrays().items()} == Moments.shapes(2, 5, basis)
        per_position = basis.packed_size + 2 * basis.size + len(("c", "g1", "n"))
        assert per_position == size
