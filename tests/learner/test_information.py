from __future__ import annotations

import numpy as np
from hypothesis import given
from tests.learner.strategies import Engine, dense_hessian, engines, row, seeds, some

from accord.learner.basis import SplineBasis
from accord.learner.information import Information
from accord.learner.moments import Moments


@given(engines())
@some
def test_information_form_is_gradient_plus_hessian_times_coefficients(engine: Engine) -> None:
    """e = g + H theta, so that H theta = e is the Newton equation of the summary, at any coefficients."""
    engine.apply_random()
    summary, F = engine.round(4), engine.basis.size
    e0, e1 = summary.information()
    for w in range(len(engine.keys)):
        theta = np.append(summary.slopes[w], summary.intercepts[w])
        g = np.append(summary.moments.g0[w], summary.moments.g1[w])
        expected = g + dense_hessian(summary.moments, engine.basis, w) @ theta
        np.testing.assert_allclose(np.append(e0[w], e1[w]), expected, rtol=1e-9, atol=1e-8)
        assert e0.shape[1] == F


@given(engines())
@some
def test_information_of_a_quadratic_does_not_depend_on_where_it_was_taken(engine: Engine) -> None:
    """Re-expressing a summary's gradient at other coefficients leaves its information form as it was."""
    summary, rng = engine.round(4), np.random.default_rng(engine.seed)
    others = [row(rng, engine.k, engine.basis) for _ in engine.keys]
    slopes, intercepts = np.stack([o.slopes for o in others]), np.stack([o.intercepts for o in others])
    m = summary.moments
    g0, g1 = m.gradient_at(engine.basis, summary.slopes, summary.intercepts, slopes, intercepts)
    elsewhere = Moments(**(m.arrays() | {"g0": g0, "g1": g1}))
    zero = np.zeros_like(slopes), np.zeros_like(intercepts)
    for again, once in zip(
        elsewhere.gradient_at(engine.basis, slopes, intercepts, *zero), summary.information(), strict=True
    ):
        np.testing.assert_allclose(again, once, rtol=1e-8, atol=1e-7)


@given(seeds)
@some
def test_recentred_information_has_its_optimum_where_it_was_put(seed: int) -> None:
    """After recentring, the solution of H theta = e is the given coefficients, and the precision is what it was."""
    engine = Engine(seed, requests=12)
    summary = engine.round(40)
    info = Information.of(summary.moments, *summary.information())
    before = info.A.copy()
    rng = np.random.default_rng(seed)
    others = [row(rng, engine.k, engine.basis) for _ in engine.keys]
    info.recentre(engine.basis, np.stack([o.slopes for o in others]), np.stack([o.intercepts for o in others]))
    assert np.array_equal(info.A, before)
    for w, other in enumerate(others):
        H = dense_hessian(summary.moments, engine.basis, w)
        theta = np.append(other.slopes, other.intercepts)
        np.testing.assert_allclose(H @ theta, np.append(info.e0[w], info.e1[w]), rtol=1e-9, atol=1e-9)


def test_scaling_fades_each_workload_by_its_own_factor() -> None:
    """Every array of a workload is multiplied by that workload's factor."""
    summary = Engine(2).round(20)
    info = Information.of(summary.moments.take([0, 1]), *summary.information())
    before = {name: array.copy() for name, array in info.arrays().items()}
    info.scale(np.array([0.5, 1.0]))
    for name, array in info.arrays().items():
        assert np.array_equal(array[0], 0.5 * before[name][0])
        assert np.array_equal(array[1], before[name][1])


def test_zeros_have_the_shapes_of_evidence() -> None:
    """Empty evidence is laid out as a summary's evidence is, and holds none."""
    summary = Engine(2).round(20)
    evidence = Information.of(summary.moments, *summary.information())
    empty = Information.zeros(len(summary.workloads), summary.k, SplineBasis((0.0, 2.0)))
    for name, array in empty.arrays().items():
        assert array.shape == evidence.arrays()[name].shape
        assert not array.any()
