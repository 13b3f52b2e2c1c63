"""Exact logistic regression on raw labels, by Newton's method (iteratively reweighted least squares).

The model is P(y = 1) = sigmoid(s . x(f) + b[k]): slopes s over a spline basis, shared by all positions, and an
intercept for each position. The objective is the mean log-loss plus ridge / (2 sum w) |theta|^2, so that `ridge` adds
to the diagonal of the information matrix. That matrix is an arrowhead: the intercepts' block is diagonal and is
eliminated, what remains is F x F (Boyd and Vandenberghe 2004, appendix C.4). Convergence and step halving follow
scikit-learn's Newton solver (`linear_model/_glm/_newton_solver.py`): largest gradient entry, then half the squared
Newton decrement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from .basis import FEATURE_LIMIT, Array, SplineBasis, sigmoid, softplus
from .errors import AccordError, InvalidValue
from .pair import check_k

TOLERANCE = 1e-9
"""Of the gradient of the mean log-loss, and of half its squared Newton decrement."""

MAX_ITERATIONS = 100
_HALVINGS = 21
_SUFFICIENT = 2.0**-11
"""Share of the linear decrease that a step must reach (Armijo), as scikit-learn sets it."""


class Outcome(StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    LINE_SEARCH = "line_search"
    """No step along the Newton direction improves the loss."""
    SINGULAR = "singular"
    """The information matrix cannot be inverted: a position or a slope that no label speaks of, and no ridge."""


class ConvergenceError(AccordError):
    """A fit that was needed did not converge.

    Attributes:
        outcome: how it ended.
    """

    def __init__(self, outcome: Outcome, iterations: int) -> None:
        self.outcome = outcome
        super().__init__(f"logistic regression did not converge: {outcome.value} after {iterations} iterations")


@dataclass(frozen=True)
class LogisticFit:
    """The result of `fit_logistic`.

    Attributes:
        slopes: float64 [F]; intercepts: float64 [K].
        covariance: float64 [F + K, F + K], inverse information at the result, slopes first; NaN when singular.
        log_loss: mean log-loss in nats, without the ridge.
        iterations: Newton steps taken.
        outcome: how the fit ended.
    """

    slopes: Array
    intercepts: Array
    covariance: Array
    log_loss: float
    iterations: int
    outcome: Outcome

    @property
    def converged(self) -> bool:
        """Whether gradient and decrement are below the tolerance."""
        return self.outcome is Outcome.CONVERGED

    def require(self) -> LogisticFit:
        """The fit itself, or ConvergenceError when it has not converged."""
        if not self.converged:
            raise ConvergenceError(self.outcome, self.iterations)
        return self


class _SingularError(Exception):
    """The arrowhead cannot be factored."""


@dataclass(frozen=True)
class Arrowhead:
    """A symmetric matrix [[A, B'], [B, diag(c)]] with A [F, F], B [K, F], c [K]."""

    A: Array
    B: Array
    c: Array

    def solve(self, g0: Array, g1: Array) -> tuple[Array, Array]:
        """The solution (x0 [F], x1 [K]) of M x = (g0, g1), through the F x F Schur complement."""
        share = self.B / self.c[:, None]
        x0 = np.linalg.solve(self.A - self.B.T @ share, g0 - share.T @ g1).astype(np.float64, copy=False)
        return x0, (g1 - self.B @ x0) / self.c

    def inverse(self) -> Array:
        """The dense inverse [F + K, F + K]."""
        share = self.B / self.c[:, None]
        top = np.linalg.inv(self.A - self.B.T @ share).astype(np.float64, copy=False)
        corner = np.diag(1.0 / self.c) + share @ top @ share.T
        full: Array = np.block([[top, -top @ share.T], [-share @ top, corner]])
        return full


class LogisticLoss:
    """Mean log-loss over labels, with its gradient and information.

    Args:
        basis: spline basis.
        k: number of positions.
        features: [N] logit(q_max); positions: [N] in 0..K-1; y: [N], 0 or 1; weights: [N] >= 0, or None for all 1.
        ridge: added to the diagonal of the information, >= 0.

    Raises:
        InvalidValue: for shapes that do not fit, no weight at all, or values out of range.
    """

    def __init__(
        self,
        basis: SplineBasis,
        k: int,
        features: npt.ArrayLike,
        positions: npt.ArrayLike,
        y: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        ridge: float = 0.0,
    ) -> None:
        self.basis, self.k, self.ridge = basis, check_k(k), float(ridge)
        f = np.asarray(features, dtype=np.float64)
        self.position = np.asarray(positions, dtype=np.intp)
        self.y = np.asarray(y, dtype=np.float64)
        self.weight = np.ones(f.shape) if weights is None else np.asarray(weights, dtype=np.float64)
        for name, array in (("positions", self.position), ("y", self.y), ("weights", self.weight)):
            if f.ndim != 1 or array.shape != f.shape:
                raise InvalidValue(name, array.shape, f"must have the features' shape [N], {f.shape}")
        if np.any((self.position < 0) | (self.position >= k)):
            raise InvalidValue("positions", int(self.position.max()), f"must lie within 0 and {k - 1}")
        if not np.all(np.abs(f) <= FEATURE_LIMIT) or not np.all((self.y == 0.0) | (self.y == 1.0)):
            raise InvalidValue("features", f.shape, f"must lie within {FEATURE_LIMIT} of 0, and y be 0 or 1")
        if not np.all(self.weight >= 0.0) or not 0.0 < (total := float(self.weight.sum())) < np.inf:
            raise InvalidValue("weights", self.weight.shape, "must be >= 0 and have a positive, finite sum")
        if not 0.0 <= self.ridge < np.inf:
            raise InvalidValue("ridge", ridge, "must be a finite number >= 0")
        self.total = total
        self.x = basis.expand(f)
        self._sign = 1.0 - 2.0 * self.y

    def log_odds(self, slopes: Array, intercepts: Array) -> Array:
        """[N]."""
        out: Array = self.x @ slopes + intercepts[self.position]
        return out

    def data_loss(self, slopes: Array, intercepts: Array) -> float:
        """Mean log-loss in nats, without the ridge."""
        return float(self.weight @ softplus(self._sign * self.log_odds(slopes, intercepts))) / self.total

    def loss(self, slopes: Array, intercepts: Array) -> float:
        """The objective."""
        penalty = 0.5 * self.ridge * float(slopes @ slopes + intercepts @ intercepts) / self.total
        return self.data_loss(slopes, intercepts) + penalty

    def gradient(self, slopes: Array, intercepts: Array) -> tuple[Array, Array]:
        """The gradient of the objective, ([F], [K])."""
        r = self.weight * (sigmoid(self.log_odds(slopes, intercepts)) - self.y)
        g1 = self._by_position(r)
        return (r @ self.x + self.ridge * slopes) / self.total, (g1 + self.ridge * intercepts) / self.total

    def hessian(self, slopes: Array, intercepts: Array) -> Arrowhead:
        """The Hessian of the objective: the information divided by the sum of weights."""
        p = sigmoid(self.log_odds(slopes, intercepts))
        v = self.weight * p * (1.0 - p)
        vx = v[:, None] * self.x
        B = np.stack([self._by_position(column) for column in vx.T], axis=1)
        c = self._by_position(v)
        A = self.x.T @ vx + self.ridge * np.eye(self.basis.size)
        return Arrowhead(A / self.total, B / self.total, (c + self.ridge) / self.total)

    def _by_position(self, values: Array) -> Array:
        return np.bincount(self.position, weights=values, minlength=self.k).astype(np.float64, copy=False)


def fit_logistic(
    loss: LogisticLoss,
    *,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> LogisticFit:
    """Minimises a `LogisticLoss` from zero coefficients.

    Never raises for data that has no finite minimum: the outcome says so, and `LogisticFit.require` raises then. With a
    ridge > 0 a minimum always exists, also for separable data.

    >>> fit = fit_logistic(LogisticLoss(SplineBasis(()), 1, [-1.0, -1.0, 1.0, 1.0], [0] * 4, [0, 1, 1, 1], ridge=1.0))
    >>> fit.converged, fit.slopes.round(3).tolist(), fit.intercepts.round(3).tolist()
    (True, [0.521], [0.521])
    """
    slopes, intercepts = np.zeros(loss.basis.size), np.zeros(loss.k)
    outcome, iterations = Outcome.MAX_ITERATIONS, 0
    for iterations in range(max_iterations + 1):
        g0, g1 = loss.gradient(slopes, intercepts)
        try:
            d0, d1 = _direction(loss.hessian(slopes, intercepts), g0, g1)
        except _SingularError:
            outcome = Outcome.SINGULAR
            break
        decrement = -float(g0 @ d0 + g1 @ d1)
        steepest = max(np.abs(g0).max(), np.abs(g1).max())
        if steepest <= tolerance and 0.5 * decrement <= tolerance:
            outcome = Outcome.CONVERGED
            break
        if iterations == max_iterations:
            break
        moved = _search(loss, slopes, intercepts, d0, d1, decrement)
        if moved is None:
            outcome = Outcome.LINE_SEARCH
            break
        slopes, intercepts = moved
    return LogisticFit(
        slopes,
        intercepts,
        _covariance(loss, slopes, intercepts),
        loss.data_loss(slopes, intercepts),
        iterations,
        outcome,
    )


def _direction(hessian: Arrowhead, g0: Array, g1: Array) -> tuple[Array, Array]:
    if np.any(hessian.c <= 0.0):
        raise _SingularError
    try:
        d0, d1 = hessian.solve(-g0, -g1)
    except np.linalg.LinAlgError:
        raise _SingularError from None
    if not (np.all(np.isfinite(d0)) and np.all(np.isfinite(d1))) or float(g0 @ d0 + g1 @ d1) > 0.0:
        raise _SingularError
    return d0, d1


def _search(
    loss: LogisticLoss, slopes: Array, intercepts: Array, d0: Array, d1: Array, decrement: float
) -> tuple[Array, Array] | None:
    """Halves the step until the loss falls enough, or, where the loss has no digits left, the gradient shrinks."""
    before = loss.loss(slopes, intercepts)
    slope_sum = sum(float(np.abs(g).sum()) for g in loss.gradient(slopes, intercepts))
    digits = 16.0 * np.finfo(np.float64).eps * abs(before)
    step = 1.0
    for _ in range(_HALVINGS):
        s, b = slopes + step * d0, intercepts + step * d1
        gain = before - loss.loss(s, b)
        if gain >= _SUFFICIENT * step * decrement and gain > digits:
            return s, b
        if abs(gain) <= digits and sum(float(np.abs(g).sum()) for g in loss.gradient(s, b)) < slope_sum:
            return s, b
        step *= 0.5
    return None


def _covariance(loss: LogisticLoss, slopes: Array, intercepts: Array) -> Array:
    size = loss.basis.size + loss.k
    hessian = loss.hessian(slopes, intercepts)
    if np.any(hessian.c <= 0.0):
        return np.full((size, size), np.nan)
    try:
        inverse = hessian.inverse() / loss.total
    except np.linalg.LinAlgError:
        return np.full((size, size), np.nan)
    return inverse if np.all(np.isfinite(inverse)) else np.full((size, size), np.nan)
