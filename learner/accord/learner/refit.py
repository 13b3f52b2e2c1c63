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


def refit(information: Information, hierarchy: Hierarchy, basis: SplineBasis) -> Fit:
    """Fits every workload of a pair; see the module for the model.

    Args:
        information: evidence of W >= 1 workloads; a workload without any is placed at the pair.
        hierarchy: parameters of the last refit: start and prior strengths.
        basis: of the evidence.
    """
    if not all(np.all(np.isfinite(array)) for array in information.arrays().values()):
        return _unusable(information, hierarchy, FitStatus.NOT_FINITE)
    try:
        system = _System(information, hierarchy, basis)
    except np.linalg.LinAlgError:
        return _unusable(information, hierarchy, FitStatus.INDEFINITE)
    status, sweeps = system.solve()
    if not system.finite():
        return _unusable(information, hierarchy, FitStatus.NOT_FINITE)
    return system.fit(status, sweeps)


class _System:
    """One refit: eliminated systems M m = r of every workload, and the search for the pair's shape around them."""

    def __init__(self, information: Information, hierarchy: Hierarchy, basis: SplineBasis) -> None:
        self.info, self.old, self.size = information, hierarchy, basis.size
        self.tau = 1.0 / hierarchy.intercept_variance
        self.gain = 1.0 / (information.c + self.tau)
        self.M = self._eliminated(basis.unpack(information.A))
        self.P = hierarchy.precision
        np.linalg.cholesky(self.M + np.diag(self.P))  # fails unless positive definite, which inv does not ask for
        self.covariance = np.linalg.inv(self.M + np.diag(self.P))
        self.hyper = hyper_precision(self.size)
        self.pair_covariance = np.linalg.inv(self._marginal_precision().sum(axis=0) + np.diag(self.hyper))
        self.weight: Array = (self.tau * information.c * self.gain).sum(axis=0) + 1.0 / SHAPE_VARIANCE
        self.shape, self.mean = hierarchy.shape.copy(), hierarchy.mean
        self.m = np.tile(self.mean, (len(information.c), 1))

    def _eliminated(self, A: Array) -> Array:
        info, f = self.info, self.size
        M = np.empty((len(A), f + 1, f + 1))
        shrunk = info.B * self.gain[:, :, None]
        M[:, :f, :f] = A - np.einsum("wki,wkj->wij", shrunk, info.B)
        M[:, :f, f] = M[:, f, :f] = self.tau * shrunk.sum(axis=1)
        M[:, f, f] = (self.tau * info.c * self.gain).sum(axis=1)
        return M

    def _right_hand_side(self) -> Array:
        info, shape = self.info, self.shape
        r = np.empty(self.m.shape)
        pulled = (info.e1 + self.tau * shape) * self.gain
        r[:, : self.size] = info.e0 - np.einsum("wkf,wk->wf", info.B, pulled)
        r[:, self.size] = self.tau * ((info.e1 - info.c * shape) * self.gain).sum(axis=1)
        return r

    def solve(self) -> tuple[FitStatus, int]:
        """Conjugate gradients on the shape, preconditioned by its diagonal; every product is one sweep of the rest.

        A plain alternation of the two blocks needs hundreds of sweeps where late positions have few labels; the search
        along conjugate directions (Hestenes and Stiefel 1952) needs at most K, and a handful in practice.
        """
        shape = self.shape
        step = direction = self._sweep(shape)
        square = self._weigh(step, step)
        for sweep in range(1, MAX_SWEEPS + 1):
            if 0.5 * square <= TOLERANCE:
                if sweep > 1:
                    self._sweep(shape)
                return FitStatus.CONVERGED, sweep
            fall = step - self._sweep(shape + direction)
            length = square / self._weigh(direction, fall)
            shape = shape + length * direction
            step = step - length * fall
            before, square = square, self._weigh(step, step)
            direction = step + square / before * direction
        return FitStatus.SLOW, MAX_SWEEPS

    def _weigh(self, a: Array, b: Array) -> float:
        return float((self.weight * a) @ b)

    def _sweep(self, shape: Array) -> Array:
        """Everything else solved exactly at this shape; returns how far the shape itself would move then, [K]."""
        self.shape = shape
        pulled = np.einsum("wij,wj->wi", self.covariance, self._right_hand_side())
        self.mean = self.pair_covariance @ (
            (self.P * pulled).sum(axis=0) + self.hyper * self.old.centre[: self.size + 1]
        )
        self.m = pulled + np.einsum("wij,j->wi", self.covariance, self.P * self.mean)
        return self._shape_step()

    def _marginal_precision(self) -> Array:
        """What each workload says of the pair's mean, its own deviation integrated out: P - P (M + P)^-1 P."""
        precision: Array = np.diag(self.P) - self.P[:, None] * self.covariance * self.P
        return precision

    def _shape_step(self) -> Array:
        info = self.info
        rest = info.e1 - np.einsum("wkf,wf->wk", info.B, self.m[:, : self.size]) - info.c * self.m[:, self.size :]
        centre = self.old.centre[self.size + 1 :]
        pull = (self.tau * rest * self.gain).sum(axis=0) + centre / SHAPE_VARIANCE
        # A common shift of shape is a shift of every level: the sum is held at 0 by a Lagrange multiplier.
        multiplier = (pull / self.weight).sum() / (1.0 / self.weight).sum()
        step: Array = (pull - multiplier) / self.weight - self.shape
        return step

    def finite(self) -> bool:
        return bool(np.all(np.isfinite(self.m)) and np.all(np.isfinite(self.shape)) and np.all(np.isfinite(self.mean)))

    def fit(self, status: FitStatus, sweeps: int) -> Fit:
        f = self.size
        target = np.einsum("wij,wj->wi", self.M + np.diag(self.P), self.m)
        self.m = solve_monotone(self.M + np.diag(self.P), target, self.m, f)
        slopes, level = self.m[:, :f], self.m[:, f]
        info = self.info
        pull = self.tau * (self.shape + level[:, None])
        intercepts = (info.e1 - np.einsum("wkf,wf->wk", info.B, slopes) + pull) * self.gain
        slopes, intercepts = _servable(slopes, intercepts)
        spread = self._spread()
        jacobian = np.concatenate([-info.B, np.full((*info.c.shape, 1), self.tau)], axis=2) * self.gain[:, :, None]
        intercept_variance = self.gain + np.einsum("wki,wij,wkj->wk", jacobian, spread, jacobian)
        hierarchy = self._update(intercepts, intercept_variance, spread)
        return Fit(
            slopes,
            intercepts,
            np.sqrt(np.einsum("wii->wi", spread)[:, :f]),
            np.sqrt(intercept_variance + self._shape_variance()),
            hierarchy,
            status,
            sweeps,
        )

    def _spread(self) -> Array:
        """Covariance [W, F + 1, F + 1] of each workload's (slopes, level), the pair's own uncertainty included."""
        lean = self.covariance * self.P
        spread: Array = self.covariance + np.einsum("wij,jk,wlk->wil", lean, self.pair_covariance, lean)
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
        """Covariance [W, F + 1, F + 1] of each workload's deviation from the pair's mean, for the EM step."""
        lean = self.covariance * self.P - np.eye(self.size + 1)
        apart: Array = self.covariance + np.einsum("wij,jk,wlk->wil", lean, self.pair_covariance, lean)
        return apart

    def _update(self, intercepts: Array, intercept_variance: Array, spread: Array) -> Hierarchy:
        """One EM step of the variances, and the pair's new means."""
        seen = self.info.c.sum(axis=1) > 0.0
        moved = (self.m - self.mean) ** 2 + np.einsum("wii->wi", self._apart())
        f, w = self.size, float(seen.sum())
        prior = np.append(prior_slope_variance(f), LEVEL_VARIANCE)
        variance = (PRIOR_WORKLOADS * prior + moved[seen].sum(axis=0)) / (PRIOR_WORKLOADS + w)
        eps = intercepts - self.shape - self.m[:, f:]
        lean = np.concatenate([-self.info.B, -self.info.c[:, :, None]], axis=2) * self.gain[:, :, None]
        eps_variance = self.gain + np.einsum("wki,wij,wkj->wk", lean, spread, lean)
        each = (eps**2 + eps_variance)[seen].sum() / intercepts.shape[1]
        return replace(
            self.old,
            slopes=_servable(_ascending(self.mean[:f]), self.shape)[0],
            level=float(self.mean[f]),
            shape=self.shape,
            slope_variance=variance[:f],
            level_variance=float(variance[f]),
            intercept_variance=float((PRIOR_WORKLOADS * INTERCEPT_VARIANCE + each) / (PRIOR_WORKLOADS + w)),
        )


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
