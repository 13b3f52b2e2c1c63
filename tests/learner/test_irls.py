"""Exact logistic regression, against other people's and against its own definition."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from accord.learner.basis import SplineBasis, sigmoid
from accord.learner.errors import InvalidValue
from accord.learner.irls import ConvergenceError, LogisticLoss, Outcome, fit_logistic

KNOTS: list[tuple[float, ...]] = [(), (0.0, 2.0, 4.0)]
K = 4


def sample(knots: tuple[float, ...], n: int = 3000, seed: int = 0) -> dict[str, Any]:
    """Labels of a known spline model."""
    rng = np.random.default_rng(seed)
    basis = SplineBasis(knots)
    f, position = rng.normal(2.0, 2.5, n), rng.integers(0, K, n)
    slopes = np.array([0.4, 0.2, -0.1, 0.1])[: basis.size]
    p = sigmoid(basis.expand(f) @ slopes + np.array([-0.5, -0.2, 0.1, 0.4])[position])
    return {"basis": basis, "k": K, "features": f, "positions": position, "y": (rng.random(n) < p).astype(float)}


def design(data: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The dense design matrix, slopes first."""
    return np.hstack([data["basis"].expand(data["features"]), np.eye(K)[data["positions"]]])


@pytest.mark.parametrize("knots", KNOTS)
def test_it_agrees_with_statsmodels(knots: tuple[float, ...]) -> None:
    """Coefficients and covariance are those of statsmodels' binomial GLM on the dense design."""
    data = sample(knots)
    fit = fit_logistic(LogisticLoss(**data)).require()
    oracle = sm.GLM(data["y"], design(data), family=sm.families.Binomial()).fit(tol=1e-12)
    np.testing.assert_allclose(np.concatenate([fit.slopes, fit.intercepts]), oracle.params, atol=1e-7)
    np.testing.assert_allclose(fit.covariance, oracle.cov_params(), rtol=1e-5, atol=1e-9)
    assert fit.log_loss == pytest.approx(-oracle.llf / len(data["y"]), abs=1e-12)


@pytest.mark.parametrize("knots", KNOTS)
def test_a_ridge_agrees_with_scikit_learn(knots: tuple[float, ...]) -> None:
    """With a ridge the coefficients are those of scikit-learn's L2-penalised regression."""
    data = sample(knots)
    fit = fit_logistic(LogisticLoss(**data, ridge=2.0)).require()
    oracle = LogisticRegression(C=0.5, fit_intercept=False, solver="newton-cholesky", tol=1e-10)
    oracle.fit(design(data), data["y"])
    np.testing.assert_allclose(np.concatenate([fit.slopes, fit.intercepts]), oracle.coef_[0], atol=1e-6)


@pytest.mark.parametrize("knots", KNOTS)
def test_gradient_and_hessian_are_the_derivatives_of_the_loss(knots: tuple[float, ...]) -> None:
    """Finite differences of the loss give the gradient, and those of the gradient the arrowhead Hessian."""
    data = sample(knots, n=200)
    size = data["basis"].size
    loss = LogisticLoss(**data, weights=np.linspace(0.1, 2.0, 200), ridge=0.7)
    theta = np.random.default_rng(1).normal(0.0, 0.3, size + K)

    def gradient(at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate(loss.gradient(at[:size], at[size:]))

    hessian = loss.hessian(theta[:size], theta[size:])
    dense = np.block([[hessian.A, hessian.B.T], [hessian.B, np.diag(hessian.c)]])
    for i, e in enumerate(np.eye(size + K) * 1e-5):
        up, down = theta + e, theta - e
        slope = (loss.loss(up[:size], up[size:]) - loss.loss(down[:size], down[size:])) / 2e-5
        assert slope == pytest.approx(gradient(theta)[i], abs=1e-8)
        np.testing.assert_allclose((gradient(up) - gradient(down)) / 2e-5, dense[i], atol=1e-7)
    np.testing.assert_allclose(hessian.inverse() @ dense, np.eye(size + K), atol=1e-8)


def test_weight_two_is_the_row_twice() -> None:
    """A label of weight 2 counts exactly as two labels."""
    data = sample((), n=500)
    weights = 1.0 + (np.arange(500) % 2)
    twice = {name: np.repeat(data[name], weights.astype(int)) for name in ("features", "positions", "y")}
    one, two = fit_logistic(LogisticLoss(**data, weights=weights)), fit_logistic(LogisticLoss(**data | twice))
    np.testing.assert_allclose(one.slopes, two.slopes, rtol=1e-9)
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-7)


def test_separable_data_has_a_fit_only_with_a_ridge() -> None:
    """Without a ridge separable labels end in a typed failure, with one they converge."""
    separable: dict[str, Any] = {"basis": SplineBasis(()), "k": 1, "positions": np.zeros(6, int)}
    separable |= {"features": np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]), "y": np.array([0, 0, 0, 1, 1, 1])}
    fit = fit_logistic(LogisticLoss(**separable), tolerance=0.0)
    assert not fit.converged
    with pytest.raises(ConvergenceError, match="did not converge") as caught:
        fit.require()
    assert caught.value.outcome is fit.outcome
    assert fit_logistic(LogisticLoss(**separable, ridge=1e-3)).require().slopes[0] > 0.0


def test_a_position_without_labels_is_singular_and_a_ridge_pins_it_to_zero() -> None:
    """What no label speaks of is named singular, not invented."""
    data = sample(()) | {"k": K + 1}
    fit = fit_logistic(LogisticLoss(**data))
    assert fit.outcome is Outcome.SINGULAR
    assert np.isnan(fit.covariance).all()
    assert fit_logistic(LogisticLoss(**data, ridge=1e-6)).require().intercepts[K] == 0.0


def test_an_unfinished_fit_says_so() -> None:
    """Too few iterations are an outcome of their own."""
    fit = fit_logistic(LogisticLoss(**sample(())), max_iterations=1)
    assert (fit.outcome, fit.iterations) == (Outcome.MAX_ITERATIONS, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("positions", np.full(3000, K)),
        ("positions", np.zeros(3)),
        ("y", np.full(3000, 0.5)),
        ("features", np.full(3000, np.nan)),
        ("weights", np.zeros(3000)),
        ("weights", np.full(3000, np.nan)),
        ("ridge", -1.0),
    ],
)
def test_bad_input_is_refused(name: str, value: Any) -> None:
    """Shapes that do not fit and values out of range are InvalidValue."""
    with pytest.raises(InvalidValue):
        LogisticLoss(**sample(()) | {name: value})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-40.0, 40.0, width=16), st.integers(0, K - 1), st.booleans()), min_size=1, max_size=30)
)
def test_a_small_ridge_always_converges(rows: list[tuple[float, int, bool]]) -> None:
    """Whatever few labels there are, separable or not, a ridge of 1e-6 gives a finite fit."""
    f, position, y = (np.array(column) for column in zip(*rows, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_logistic(LogisticLoss(SplineBasis(()), K, f, position, y, ridge=1e-6)).require()
    assert np.isfinite(fit.slopes).all()
    assert np.isfinite(fit.intercepts).all()
