"""The refit: all workloads of a pair at once, each shrunk to the pair, with strengths that are learnt.

Model. For workload x with evidence in information form:

    s[x] ~ N(s_pair, diag(vs)),   b[x, k] = level[x] + shape[k] + eps[x, k],
    level[x] ~ N(level_pair, vL), eps ~ N(0, vI), weak priors on s_pair, level_pair and shape.

Given the variances everything is Gaussian. eps is diagonal, so it is eliminated in closed form and what remains of a
workload is a system in m = (s, level), F + 1 wide; workloads are solved as one batch, and the pair's own mean from
their marginals, again F + 1 wide. shape is diagonal given the rest, and found by conjugate gradients around that, warm
from the last refit. No system grows with K or W. Variances take one EM step a refit (Dempster,
Laird and Rubin 1977; for variance components: Laird and Ware 1982) against a weak prior worth two workloads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from .basis import Array, SplineBasis
from .coefficients import COEFFICIENT_LIMIT
from .hierarchy import (
    INTERCEPT_VARIANCE,
    LEVEL_VARIANCE,
    PRIOR_WORKLOADS,
    SHAPE_VARIANCE,
    Hierarchy,
    hyper_precision,
    prior_slope_variance,
)
from .information import Information
from .monotone import solve_monotone

MAX_VARIANCE_RATIO = 25.0
"""No variance grows beyond this many times its prior: what is left of the prior keeps every system well conditioned."""

OUTLIER = 5.0
OUTLIER_VARIANCE_RATIO = 4.0
OUTLIER_PASSES = 3
LEAST_WEIGHT = 0.01
"""A workload farther from the pair than OUTLIER standard deviations, taken at most twice as wide as their prior, counts
less: with the inverse square of its distance, and never less than LEAST_WEIGHT."""

MAX_SWEEPS = 50
TOLERANCE = 1e-9
"""The sweep stops when its Newton decrement, in nats, has fallen to this."""


class FitStatus(StrEnum):
    """How a refit ended."""

    CONVERGED = "converged"
    SLOW = "slow"
    """Not within the tolerance after the last sweep: kept from being published, and counted."""
    NOT_FINITE = "not_finite"
    """Evidence or solution not finite: the last fit stays in force."""
    INDEFINITE = "indefinite"
    """Curvature that no labels can have, and more of it than the priors outweigh: the last fit stays in force."""

    @property
    def usable(self) -> bool:
        """Whether the fit holds coefficients at all."""
        return self in (FitStatus.CONVERGED, FitStatus.SLOW)


@dataclass(frozen=True)
class Fit:
    """The outcome of one refit.

    Attributes:
        slopes, intercepts: [W, F], [W, K].
        slope_errors, intercept_errors: standard errors of the same shapes.
        hierarchy: the pair's parameters after the refit.
        status: only a converged fit may be published.
        sweeps: how many sweeps it took.
    """

    slopes: Array
    intercepts: Array
    slope_errors: Array
    intercept_errors: Array
    hierarchy: Hierarchy
    status: FitStatus
    sweeps: int

    def finite(self) -> bool:
        """Whether every number is finite, and every variance of the pair positive."""
        h = self.hierarchy
        arrays = (self.slopes, self.intercepts, self.slope_errors, self.intercept_errors, h.slopes, h.shape)
        variances = np.append(h.slope_variance, (h.level_variance, h.intercept_variance))
        known = all(np.isfinite(array).all() for array in arrays) and np.isfinite((*variances, h.level)).all()
        return bool(known and (variances > 0.0).all())


def refit(information: Information, hierarchy: Hierarchy, basis: SplineBasis) -> Fit:
    """Fits every workload of a pair; see the module for the model.

    Args:
        information: evidence of W >= 1 workloads; a workload without any is placed at the pair.
        hierarchy: parameters of the last refit: start and prior strengths.
        basis: of the evidence.
    """
    if not all(np.isfinite(array).all() for array in information.arrays().values()):
        return _unusable(information, hierarchy, FitStatus.NOT_FINITE)
    try:
        system = _System(information, hierarchy, basis)
        status, sweeps = system.solve()
        for _ in range(OUTLIER_PASSES):
            looser = system.loosened()
            if looser is None:
                break
            system = looser
            status, sweeps = system.solve()
        fit = system.fit(status, sweeps)
    except np.linalg.LinAlgError:
        return _unusable(information, hierarchy, FitStatus.INDEFINITE)
    return fit if fit.finite() else _unusable(information, hierarchy, FitStatus.NOT_FINITE)


class _System:
    """One refit: eliminated systems M m = r of every workload, and the search for the pair's shape around them."""

    def __init__(
        self, information: Information, hierarchy: Hierarchy, basis: SplineBasis, looseness: Array | None = None
    ) -> None:
        self.info, self.old, self.basis, self.size = information, hierarchy, basis, basis.size
        self.looseness = np.ones(len(information.c)) if looseness is None else looseness
        info, centre = information, hierarchy.centre
        self.tau = 1.0 / hierarchy.intercept_variance
        self.gain = 1.0 / (info.c + self.tau)
        # How a workload's (slopes, level) follows the part of its intercepts that eps may not take up, [W, K, F + 1].
        self.design = np.concatenate([info.B, info.c[:, :, None]], axis=2) * self.gain[:, :, None]
        self.P: Array = self.looseness[:, None] * hierarchy.precision
        bound = self.P[:, :, None] * np.eye(self.size + 1)
        self.H = self._eliminated(basis.unpack(info.A)) + bound
        np.linalg.cholesky(self.H)  # fails unless positive definite, which inv does not ask for
        self.covariance = np.linalg.inv(self.H).astype(np.float64, copy=False)
        self.lean = self.covariance * self.P[:, None, :]
        self.hyper = hyper_precision(self.size)
        # What each workload says of the pair's mean, its own deviation integrated out: P - P (M + P)^-1 P.
        marginal = bound - self.P[:, :, None] * self.lean
        self.pair_covariance = np.linalg.inv(marginal.sum(axis=0) + np.diag(self.hyper))
        self.weight: Array = self.tau * self.design[:, :, -1].sum(axis=0) + 1.0 / SHAPE_VARIANCE
        self.share = (1.0 / self.weight) / (1.0 / self.weight).sum()
        # Constant parts of what the sweep solves: everything but the shape's own contribution.
        self.rest = self._right_hand_side()
        self.hyper_pull = self.hyper * centre[: self.size + 1]
        self.shape_pull: Array = self.tau * (info.e1 * self.gain).sum(axis=0) + centre[self.size + 1 :] / SHAPE_VARIANCE

    def _eliminated(self, A: Array) -> Array:
        info, f = self.info, self.size
        M = np.empty((len(A), f + 1, f + 1))
        M[:, :f, :f] = A - self.design[:, :, :f].transpose(0, 2, 1) @ info.B
        M[:, f] = self.tau * self.design.sum(axis=1)
        M[:, :f, f] = M[:, f, :f]
        return M

    def _right_hand_side(self) -> Array:
        info, f = self.info, self.size
        r = np.empty(self.design.shape[::2])
        r[:, :f] = info.e0 - _weighted(info.e1, self.design[:, :, :f])
        r[:, f] = self.tau * (info.e1 * self.gain).sum(axis=1)
        return r

    def solve(self) -> tuple[FitStatus, int]:
        """Conjugate gradients on the shape, preconditioned by its diagonal; every product is one sweep of the rest.

        A plain alternation of the two blocks needs hundreds of sweeps where late positions have few labels; the search
        along conjugate directions (Hestenes and Stiefel 1952) needs at most K, and a handful in practice.
        """
        at = self._sweep(self.old.shape)
        direction = at[-1]
        square = self._weigh(direction, direction)
        for sweep in range(1, MAX_SWEEPS + 1):
            if 0.5 * square <= TOLERANCE:
                self.shape, self.mean, self.m, _ = at
                return FitStatus.CONVERGED, sweep
            probe = self._sweep(at[0] + direction)
            curvature = self._weigh(direction, at[-1] - probe[-1])
            if not curvature > 0.0:
                break
            length = square / curvature
            # Everything is an affine function of the shape: what holds at the new one lies on the line through both.
            at = tuple(a + length * (b - a) for a, b in zip(at, probe, strict=True))
            before, square = square, self._weigh(at[-1], at[-1])
            direction = at[-1] + square / before * direction
        self.shape, self.mean, self.m, _ = at
        return FitStatus.SLOW, MAX_SWEEPS

    def _weigh(self, a: Array, b: Array) -> float:
        return float((self.weight * a) @ b)

    def _sweep(self, shape: Array) -> tuple[Array, ...]:
        """Everything else solved exactly at this shape [K].

        Returns the shape, the pair's mean [F + 1], every workload's (slopes, level) [W, F + 1], and how far the shape
        itself would move then [K].
        """
        pulled = _times(self.covariance, self.rest - self.tau * (shape @ self.design))
        mean = self.pair_covariance @ ((self.P * pulled).sum(axis=0) + self.hyper_pull)
        m = pulled + self.lean @ mean
        pull = self.shape_pull - self.tau * _times(self.design, m).sum(axis=0)
        # A common shift of shape is a shift of every level: the sum is held at 0 by a Lagrange multiplier.
        step: Array = (pull - self.share @ pull) / self.weight - shape
        return shape, mean, m, step

    def loosened(self) -> _System | None:
        """The same system with outliers held less tightly; None when there are none, or too little would hold them."""
        weight = self._outlier_weight()
        if np.array_equal(weight, self.looseness):
            return None
        try:
            return _System(self.info, self.old, self.basis, weight)
        except np.linalg.LinAlgError:
            return None

    def _outlier_weight(self) -> Array:
        """How much of the prior's strength each workload keeps, [W]: 1, and less the farther beyond OUTLIER it lies.

        Weights of a redescending kind (after Huber 1964) on the largest standardised distance from the pair's mean. So
        one workload that is nothing like the others, one that always rejects for example, neither drags the prior row
        of unseen workloads along nor is itself held back by it.
        """
        prior = np.append(prior_slope_variance(self.size), LEVEL_VARIANCE)
        scale = np.sqrt(np.clip(1.0 / self.old.precision, prior, OUTLIER_VARIANCE_RATIO * prior))
        distance = (np.abs(self.m - self.mean) / scale).max(axis=1)
        weight: Array = np.maximum((OUTLIER / np.maximum(distance, OUTLIER)) ** 2, LEAST_WEIGHT)
        return weight

    def fit(self, status: FitStatus, sweeps: int) -> Fit:
        f = self.size
        self.m = solve_monotone(self.H, _times(self.H, self.m), self.m, f)
        slopes, level = self.m[:, :f], self.m[:, f]
        info = self.info
        pull = self.tau * (self.shape + level[:, None])
        intercepts = (info.e1 - _times(info.B, slopes) + pull) * self.gain
        slopes, intercepts = _servable(slopes, intercepts)
        spread = self._spread()
        pushed = self.design @ spread
        eps_variance = self.gain + _inner(pushed, self.design)
        # b = level + shape + eps: its variance is that of eps, of the level, and twice what they share.
        intercept_variance = eps_variance + spread[:, f, f, None] - 2.0 * pushed[:, :, f]
        hierarchy = self._update(intercepts, eps_variance)
        return Fit(
            slopes,
            intercepts,
            _root(_diagonal(spread)[:, :f]),
            _root(intercept_variance + self._shape_variance()),
            hierarchy,
            status,
            sweeps,
        )

    def _spread(self) -> Array:
        """Covariance [W, F + 1, F + 1] of each workload's (slopes, level), the pair's own uncertainty included."""
        spread: Array = self.covariance + self.lean @ self.pair_covariance @ self.lean.transpose(0, 2, 1)
        return spread

    def _shape_variance(self) -> Array:
        """What is not known of the pair's shape, as far as each intercept follows it, [W, K].

        Given the workloads' (slopes, level): a position that nobody has seen gets the prior's variance, a well-known
        one almost nothing. The levels can take up what the sum of the shape may not, so its being 0 is left out; only
        K = 1 has no shape at all.
        """
        if self.info.c.shape[1] == 1:
            return np.zeros_like(self.gain)
        follows: Array = (self.tau * self.gain) ** 2 / self.weight
        return follows

    def _apart(self) -> Array:
        """Variance [W, F + 1] of each workload's deviation from the pair's mean, for the EM step."""
        lean = self.lean - np.eye(self.size + 1)
        apart: Array = _diagonal(self.covariance) + _inner(lean @ self.pair_covariance, lean)
        return apart

    def _update(self, intercepts: Array, eps_variance: Array) -> Hierarchy:
        """One EM step of the variances, and the pair's new means."""
        seen = self.info.c.sum(axis=1) > 0.0
        moved = (self.m - self.mean) ** 2 + self._apart()
        f, w = self.size, float(seen.sum())
        prior = np.append(prior_slope_variance(f), LEVEL_VARIANCE)
        moved = self.looseness[:, None] * moved
        variance = (PRIOR_WORKLOADS * prior + moved[seen].sum(axis=0)) / (PRIOR_WORKLOADS + w)
        variance = np.minimum(variance, MAX_VARIANCE_RATIO * prior)
        eps = intercepts - self.shape - self.m[:, f:]
        each = (self.looseness[:, None] * (eps**2 + eps_variance))[seen].sum() / intercepts.shape[1]
        eps_each = (PRIOR_WORKLOADS * INTERCEPT_VARIANCE + each) / (PRIOR_WORKLOADS + w)
        return replace(
            self.old,
            slopes=_servable(_ascending(self.mean[:f]), self.shape)[0],
            level=float(self.mean[f]),
            shape=self.shape,
            slope_variance=variance[:f],
            level_variance=float(variance[f]),
            intercept_variance=float(min(eps_each, MAX_VARIANCE_RATIO * INTERCEPT_VARIANCE)),
        )


def _times(matrix: Array, vector: Array) -> Array:
    """[W, I, J] and [W, J] -> [W, I], one small product for each workload; einsum would take thrice as long."""
    product: Array = (matrix @ vector[:, :, None])[:, :, 0]
    return product


def _weighted(weights: Array, rows: Array) -> Array:
    """[W, K] and [W, K, J] -> [W, J]: the sum of rows, weighted."""
    total: Array = (weights[:, None, :] @ rows)[:, 0]
    return total


def _inner(a: Array, b: Array) -> Array:
    """[W, I, J] twice -> [W, I]: the inner product of every row with its counterpart."""
    product: Array = np.einsum("wij,wij->wi", a, b)
    return product


def _diagonal(matrices: Array) -> Array:
    """[W, I, I] -> [W, I]."""
    return np.diagonal(matrices, axis1=1, axis2=2)


def _root(variance: Array) -> Array:
    """Standard errors; a variance that rounding made negative is 0."""
    root: Array = np.sqrt(np.maximum(variance, 0.0))
    return root


def _ascending(slopes: Array) -> Array:
    """The nearest slopes, from left to right, whose cumulative sums are >= 0."""
    ascending: Array = np.diff(np.maximum(np.cumsum(slopes), 0.0), prepend=0.0)
    return ascending


def _servable(slopes: Array, intercepts: Array) -> tuple[Array, Array]:
    """Coefficients [..., F], [..., K] within the limits of what may be served; inside them they come back untouched.

    A Newton step from coefficients at which p (1 - p) is nearly 0 can land anywhere.
    """
    total = np.cumsum(slopes, axis=-1)
    if total.max(initial=0.0) > COEFFICIENT_LIMIT:
        slopes = np.diff(np.clip(total, 0.0, COEFFICIENT_LIMIT), axis=-1, prepend=0.0)
    return slopes, np.clip(intercepts, -COEFFICIENT_LIMIT, COEFFICIENT_LIMIT)


def _unusable(information: Information, hierarchy: Hierarchy, status: FitStatus) -> Fit:
    w, k = information.c.shape
    slopes, intercepts = np.tile(hierarchy.slopes, (w, 1)), np.tile(hierarchy.intercepts, (w, 1))
    unknown = np.full((w, k), np.inf)
    return Fit(slopes, intercepts, np.full(slopes.shape, np.inf), unknown, hierarchy, status, 0)
