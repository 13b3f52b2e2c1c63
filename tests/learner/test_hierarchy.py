from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import null_space
from tests.learner.strategies import bases, few, random_information, seeds, some

from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.coefficients import COEFFICIENT_LIMIT, COLD_INTERCEPT, COLD_SLOPE, Coefficients
from accord.learner.hierarchy import (
    INTERCEPT_VARIANCE,
    LEVEL_VARIANCE,
    PAIR_HINGE_VARIANCE,
    PAIR_LEVEL_VARIANCE,
    PAIR_SLOPE_VARIANCE,
    PRIOR_WORKLOADS,
    SHAPE_VARIANCE,
    Hierarchy,
    prior_slope_variance,
)
from accord.learner.information import Information
from accord.learner.refit import FitStatus, refit


@dataclass
class Dense:
    """The joint Gaussian of (pair mean, every (s, level), every b, shape) as one dense system: the oracle.

    Attributes:
        mean, m, b, shape: posterior means.
        cov: posterior covariance of all of them; given_shape: the same with shape held at its mean.
    """

    info: Information
    hierarchy: Hierarchy
    basis: SplineBasis

    def __post_init__(self) -> None:
        (self.W, self.K), F, info, h = self.info.c.shape, self.basis.size, self.info, self.hierarchy
        self.F, W, K, G = F, self.W, self.K, F + 1
        n = G + W * G + W * K + K
        Q, e = np.zeros((n, n)), np.zeros(n)
        hyper = 1.0 / np.array([PAIR_SLOPE_VARIANCE] + [PAIR_HINGE_VARIANCE] * (F - 1) + [PAIR_LEVEL_VARIANCE])
        centre = np.array([COLD_SLOPE] + [0.0] * (F - 1) + [COLD_INTERCEPT])
        pair, shape = np.arange(G), np.arange(n - K, n)
        Q[pair, pair], e[pair] = hyper, hyper * centre
        Q[shape, shape] = 1.0 / SHAPE_VARIANCE
        A, tau = self.basis.unpack(info.A), 1.0 / h.intercept_variance
        for w in range(W):
            m, b = self.at_m(w), self.at_b(w)
            self.tie(Q, np.stack([m, pair]), [1.0, -1.0], h.precision)
            level = np.full(K, m[F])
            self.tie(Q, np.stack([b, level, shape]), [1.0, -1.0, -1.0], np.full(K, tau))
            s = m[:F]
            Q[np.ix_(s, s)] += A[w]
            Q[np.ix_(b, s)] += info.B[w]
            Q[np.ix_(s, b)] += info.B[w].T
            Q[b, b] += info.c[w]
            e[s] += info.e0[w]
            e[b] += info.e1[w]
        # the shape sums to 0: it moves in the null space of the sum
        free = null_space(np.ones((1, K)))
        T = np.zeros((n, n - K + free.shape[1]))
        T[: n - K, : n - K] = np.eye(n - K)
        T[n - K :, n - K :] = free
        inverse = np.linalg.inv(T.T @ Q @ T)
        x, self.cov = T @ (inverse @ (T.T @ e)), T @ inverse @ T.T
        self.given_shape = np.linalg.inv(Q[: n - K, : n - K])
        self.mean, self.shape = x[pair], x[shape]
        self.m = np.stack([x[self.at_m(w)] for w in range(W)])
        self.b = np.stack([x[self.at_b(w)] for w in range(W)])
        self.Q, self.x = Q, x

    def at_m(self, w: int) -> np.ndarray:
        """Where (s, level) of a workload stand."""
        return (self.F + 1) * (1 + w) + np.arange(self.F + 1)

    def at_b(self, w: int) -> np.ndarray:
        """Where its intercepts stand."""
        return (self.F + 1) * (1 + self.W) + self.K * w + np.arange(self.K)

    @staticmethod
    def tie(Q: Array, places: np.ndarray, signs: list[float], precision: Array) -> None:
        """Adds precision * (sum of signed variables)^2 / 2, column by column of places."""
        for i, a in zip(places, signs, strict=True):
            for j, b in zip(places, signs, strict=True):
                np.add.at(Q, (i, j), a * b * precision)

    def errors(self, cov: Array) -> tuple[Array, Array]:
        """Standard errors of slopes [W, F] and intercepts [W, K] under a covariance."""
        sd = np.sqrt(np.diag(cov))
        slopes = np.stack([sd[self.at_m(w)[: self.F]] for w in range(self.W)])
        return slopes, np.stack([sd[self.at_b(w)] for w in range(self.W)])

    def em(self) -> tuple[Array, float]:
        """What one EM step, with shape held, makes of the variances of (slopes, level) and of the intercepts."""
        C, G, seen = self.given_shape, self.F + 1, np.flatnonzero(self.info.c.sum(axis=1) > 0)
        pair = np.arange(G)
        apart, eps = np.zeros(G), 0.0
        for w in seen:
            m, b = self.at_m(w), self.at_b(w)
            apart += (self.m[w] - self.mean) ** 2 + C[m, m] + C[pair, pair] - 2.0 * C[m, pair]
            level = m[self.F]
            gap = self.b[w] - self.m[w, self.F] - self.shape
            eps += float((gap**2 + C[b, b] + C[level, level] - 2.0 * C[b, level]).mean())
        prior = np.append(prior_slope_variance(self.F), LEVEL_VARIANCE)
        worth = PRIOR_WORKLOADS + len(seen)
        return (PRIOR_WORKLOADS * prior + apart) / worth, (PRIOR_WORKLOADS * INTERCEPT_VARIANCE + eps) / worth

    def evidence(self) -> float:
        """Log marginal likelihood of the variances at this shape, with their priors, up to a constant."""
        h, n, K = self.hierarchy, len(self.x) - self.K, self.K
        Q = self.Q[:n, :n]
        e = Q @ self.x[:n]  # at a fixed shape the mean solves Q x = e
        quadratic = 0.5 * float(e @ self.x[:n]) - 0.5 * self.W / h.intercept_variance * float(self.shape @ self.shape)
        v = np.append(h.slope_variance, h.level_variance)
        prior = np.append(prior_slope_variance(self.F), LEVEL_VARIANCE)
        normal = 0.5 * self.W * (np.log(1.0 / v).sum() - K * np.log(h.intercept_variance))
        weak = -0.5 * PRIOR_WORKLOADS * float((np.log(v) + prior / v).sum())
        weak -= 0.5 * PRIOR_WORKLOADS * K * (np.log(h.intercept_variance) + INTERCEPT_VARIANCE / h.intercept_variance)
        shape = -0.5 * float(self.shape @ self.shape) / SHAPE_VARIANCE
        return quadratic - 0.5 * float(np.linalg.slogdet(Q)[1]) + float(normal) + weak + shape


def rising(fit_slopes: Array) -> bool:
    """Whether no workload lies on the edge of the monotone constraint."""
    return bool(np.all(np.cumsum(fit_slopes, axis=1) > 1e-6))


def one_quadratic(information: Information, basis: SplineBasis, w: int) -> tuple[Array, Array]:
    """Dense (H, e) of one workload's evidence."""
    A, B, c = basis.unpack(information.A)[w], information.B[w], information.c[w]
    return np.block([[A, B.T], [B, np.diag(c)]]), np.append(information.e0[w], information.e1[w])


def scaled(information: Information, factor: float) -> Information:
    """The same evidence, counted that many times."""
    return Information(*(array * factor for array in information.arrays().values()))


@given(seeds, bases, st.integers(1, 6), st.integers(1, 6), st.integers(5, 2_000))
@some
def test_means_and_errors_are_those_of_the_dense_joint_gaussian(
    seed: int, basis: SplineBasis, workloads: int, k: int, labels: int
) -> None:
    """The eliminated, alternating solution is that of one dense system over everything at once.

    Errors of slopes are those of the dense system with the shape held at its mean, a few percent below the full ones;
    intercepts add what is not known of the shape given the rest, which leaves them within 20% of the full posterior's.
    """
    info = random_information(np.random.default_rng(seed), workloads, k, basis, labels)
    hierarchy = Hierarchy.cold(k, basis)
    dense, fit = Dense(info, hierarchy, basis), refit(info, hierarchy, basis)
    assume(rising(dense.m[:, : basis.size]) and fit.status is FitStatus.CONVERGED)
    np.testing.assert_allclose(fit.slopes, dense.m[:, : basis.size], atol=2e-4)
    np.testing.assert_allclose(fit.intercepts, dense.b, atol=5e-4)
    np.testing.assert_allclose(fit.hierarchy.shape, dense.shape, atol=5e-4)
    assert fit.hierarchy.level == pytest.approx(dense.mean[-1], abs=5e-4)
    slopes, intercepts = dense.errors(dense.cov)
    held_slopes, held_intercepts = dense.errors(dense.given_shape)
    np.testing.assert_allclose(fit.slope_errors, held_slopes, rtol=1e-6)
    assert np.all((0.95 * slopes <= fit.slope_errors) & (fit.slope_errors <= slopes * (1.0 + 1e-9)))
    assert np.all(fit.intercept_errors >= held_intercepts * (1.0 - 1e-9))
    assert np.all((0.8 * intercepts <= fit.intercept_errors) & (fit.intercept_errors <= 1.2 * intercepts))


def test_a_position_that_nobody_has_seen_is_as_unsure_as_the_prior() -> None:
    """An intercept without labels anywhere stays as unsure as the prior of the shape, however known the rest."""
    basis = SplineBasis(())
    info = random_information(np.random.default_rng(0), 4, 6, basis, 50_000)
    info.B[:, 5], info.c[:, 5], info.e1[:, 5] = 0.0, 0.0, 0.0
    fit = refit(info, Hierarchy.cold(6, basis), basis)
    assert np.all(fit.intercept_errors[:, :5] < 0.1)
    assert np.all(fit.intercept_errors[:, 5] > np.sqrt(SHAPE_VARIANCE))


@given(seeds, bases, st.integers(1, 6), st.integers(1, 5), st.integers(5, 2_000))
@some
def test_variances_take_exactly_one_em_step(seed: int, basis: SplineBasis, workloads: int, k: int, labels: int) -> None:
    """The new variances are the expected squares under the dense posterior, and a prior worth two workloads."""
    info = random_information(np.random.default_rng(seed), workloads, k, basis, labels)
    hierarchy = Hierarchy.cold(k, basis)
    dense, fit = Dense(info, hierarchy, basis), refit(info, hierarchy, basis)
    assume(rising(dense.m[:, : basis.size]) and fit.status is FitStatus.CONVERGED)
    variances, intercept_variance = dense.em()
    np.testing.assert_allclose(fit.hierarchy.slope_variance, variances[:-1], rtol=1e-3)
    assert fit.hierarchy.level_variance == pytest.approx(variances[-1], rel=1e-3)
    assert fit.hierarchy.intercept_variance == pytest.approx(intercept_variance, rel=1e-3)


@given(seeds, st.sampled_from([(), (0.0, 2.0)]), st.integers(1, 8), st.sampled_from([60, 400, 4_000]))
@few
def test_em_never_makes_the_variances_less_likely(
    seed: int, knots: tuple[float, ...], workloads: int, labels: int
) -> None:
    """Refit after refit on the same evidence, the marginal likelihood of the variances climbs."""
    basis, k = SplineBasis(knots), 3
    info = random_information(np.random.default_rng(seed), workloads, k, basis, labels)
    hierarchy, heights = Hierarchy.cold(k, basis), []
    for _ in range(8):
        fit = refit(info, hierarchy, basis)
        assume(rising(fit.slopes))
        heights.append(Dense(info, hierarchy, basis).evidence())
        hierarchy = fit.hierarchy
    assert np.all(np.diff(heights) > -1e-6 * (1.0 + np.abs(heights[0])))


@given(seeds, bases, st.integers(2, 6), st.integers(1, 5))
@some
def test_order_of_workloads_does_not_matter(seed: int, basis: SplineBasis, workloads: int, k: int) -> None:
    """Permuted workloads get the same coefficients, and the pair the same parameters, up to rounding."""
    rng = np.random.default_rng(seed)
    info, order = random_information(rng, workloads, k, basis), rng.permutation(workloads)
    shuffled = Information(*(array[order] for array in info.arrays().values()))
    one, other = (refit(i, Hierarchy.cold(k, basis), basis) for i in (info, shuffled))
    np.testing.assert_allclose(other.slopes, one.slopes[order], atol=1e-8)
    np.testing.assert_allclose(other.intercepts, one.intercepts[order], atol=1e-8)
    np.testing.assert_allclose(other.intercept_errors, one.intercept_errors[order], rtol=1e-9)
    np.testing.assert_allclose(other.hierarchy.slope_variance, one.hierarchy.slope_variance, rtol=1e-6)


@given(seeds, bases, st.integers(1, 5), st.integers(1, 5))
@some
def test_a_workload_without_evidence_stands_at_the_pair(seed: int, basis: SplineBasis, workloads: int, k: int) -> None:
    """An unseen workload gets the pair's mean and errors as wide as the priors, and changes nothing for the others."""
    info = random_information(np.random.default_rng(seed), workloads, k, basis)
    more = Information(*(np.concatenate([a, np.zeros((1, *a.shape[1:]))]) for a in info.arrays().values()))
    without, fit = (refit(i, Hierarchy.cold(k, basis), basis) for i in (info, more))
    assume(rising(fit.slopes))
    np.testing.assert_allclose(fit.slopes[:-1], without.slopes, atol=1e-7)
    np.testing.assert_allclose(fit.hierarchy.slope_variance, without.hierarchy.slope_variance, rtol=1e-6)
    np.testing.assert_allclose(fit.slopes[-1], fit.hierarchy.slopes, atol=1e-7)
    np.testing.assert_allclose(fit.intercepts[-1], fit.hierarchy.intercepts, atol=1e-4)
    assert np.all(fit.slope_errors[-1] ** 2 >= prior_slope_variance(basis.size) * (1 - 1e-9))
    assert np.all(fit.intercept_errors[-1] ** 2 >= LEVEL_VARIANCE + INTERCEPT_VARIANCE - 1e-9)


@pytest.mark.parametrize("knots", [(), (0.0,), (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)])
@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.parametrize("workloads", [1, 3])
def test_no_evidence_at_all_is_the_cold_start(knots: tuple[float, ...], k: int, workloads: int) -> None:
    """Without evidence every workload has the published medians and the variances stay where they began."""
    basis = SplineBasis(knots)
    cold = Hierarchy.cold(k, basis)
    fit = refit(Information.zeros(workloads, k, basis), cold, basis)
    start = Coefficients.cold(k, basis)
    np.testing.assert_allclose(fit.slopes, np.tile(start.slopes, (workloads, 1)), atol=1e-12)
    np.testing.assert_allclose(fit.intercepts, np.tile(start.intercepts, (workloads, 1)), atol=1e-12)
    assert fit.status is FitStatus.CONVERGED
    assert fit.hierarchy.level_variance == LEVEL_VARIANCE
    assert np.array_equal(fit.hierarchy.slope_variance, cold.slope_variance)


@given(seeds, bases, st.integers(1, 4), st.integers(1, 4))
@some
def test_huge_evidence_stands_on_its_own(seed: int, basis: SplineBasis, workloads: int, k: int) -> None:
    """A workload with very much evidence gets the maximum of its own likelihood, with its own information's errors."""
    info = scaled(random_information(np.random.default_rng(seed), workloads, k, basis, 3_000), 1e7)
    fit = refit(info, Hierarchy.cold(k, basis), basis)
    for w in range(workloads):
        H, e = one_quadratic(info, basis, w)
        own = np.linalg.solve(H, e)
        if not np.all(np.cumsum(own[: basis.size]) > 1e-3):
            continue
        np.testing.assert_allclose(np.append(fit.slopes[w], fit.intercepts[w]), own, atol=1e-3)
        errors = np.append(fit.slope_errors[w], fit.intercept_errors[w])
        np.testing.assert_allclose(errors, np.sqrt(np.diag(np.linalg.inv(H))), rtol=1e-2)


@given(seeds, bases, st.integers(1, 4))
@some
def test_twice_the_evidence_is_twice_the_information(seed: int, basis: SplineBasis, k: int) -> None:
    """Doubled evidence gives what the dense system gives for the doubled sums, and errors that shrink."""
    info = random_information(np.random.default_rng(seed), 2, k, basis, 800)
    once, twice = (refit(i, Hierarchy.cold(k, basis), basis) for i in (info, scaled(info, 2.0)))
    dense = Dense(scaled(info, 2.0), Hierarchy.cold(k, basis), basis)
    assume(rising(dense.m[:, : basis.size]) and rising(once.slopes))
    np.testing.assert_allclose(twice.intercepts, dense.b, atol=5e-4)
    assert np.all(twice.slope_errors < once.slope_errors)
    assert np.all(twice.intercept_errors < once.intercept_errors)


@given(seeds, bases, st.integers(1, 5), st.integers(1, 4), st.floats(-8.0, 8.0))
@some
def test_served_slopes_never_fall(seed: int, basis: SplineBasis, workloads: int, k: int, pull: float) -> None:
    """However the evidence pulls, cumulative slopes are >= 0 and the rows can be served, the prior row too."""
    rng = np.random.default_rng(seed)
    info = random_information(rng, workloads, k, basis)
    info.e0 += pull * np.abs(info.e0).max() * rng.normal(size=info.e0.shape)
    fit = refit(info, Hierarchy.cold(k, basis), basis)
    assert np.all(np.cumsum(fit.slopes, axis=1) >= -1e-9)
    for slopes, intercepts in zip(fit.slopes, fit.intercepts, strict=True):
        Coefficients(slopes, intercepts)
    Coefficients(fit.hierarchy.slopes, fit.hierarchy.intercepts)


def test_a_step_without_curvature_stays_within_what_can_be_served() -> None:
    """Gradients from labels at which the model was certain, and wrong, end at the limits and not beyond."""
    for knots in ((), (0.0, 2.0)):
        basis = SplineBasis(knots)
        for sign in (-1.0, 1.0):
            info = Information.zeros(2, 3, basis)
            info.e1[0], info.e0[0, 0] = sign * 1e6, sign * 4e7
            fit = refit(info, Hierarchy.cold(3, basis), basis)
            assert np.abs(fit.intercepts).max() == COEFFICIENT_LIMIT
            for slopes, intercepts in zip(fit.slopes, fit.intercepts, strict=True):
                Coefficients(slopes, intercepts)
            Coefficients(fit.hierarchy.slopes, fit.hierarchy.intercepts)


@pytest.mark.parametrize("name", ["A", "B", "c", "e0", "e1"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_evidence_that_is_not_finite_gives_no_fit(name: str, value: float) -> None:
    """NaN or infinity anywhere is a typed outcome that leaves the pair's parameters as they were."""
    basis = SplineBasis((0.0,))
    info, cold = random_information(np.random.default_rng(0), 2, 3, basis), Hierarchy.cold(3, basis)
    getattr(info, name).flat[0] = value
    fit = refit(info, cold, basis)
    assert fit.status is FitStatus.NOT_FINITE
    assert not fit.status.usable
    assert fit.hierarchy is cold


def test_curvature_that_no_labels_have_gives_no_fit() -> None:
    """An indefinite Hessian is a typed outcome, not negative variances."""
    basis = SplineBasis(())
    info = Information.zeros(2, 3, basis)
    info.A[0] = -1e4
    fit = refit(info, Hierarchy.cold(3, basis), basis)
    assert fit.status is FitStatus.INDEFINITE
    assert not fit.status.usable


@given(seeds, bases, st.integers(1, 10), st.integers(1, 12), st.sampled_from([5, 100, 2_000]), st.floats(0.0, 8.0))
@some
def test_sweeps_converge_on_ordinary_evidence(
    seed: int, basis: SplineBasis, workloads: int, k: int, labels: int, growth: float
) -> None:
    """From a few labels to hundreds of millions, fits converge within the sweeps that are allowed, warm and cold."""
    info = scaled(random_information(np.random.default_rng(seed), workloads, k, basis, labels), 10.0 ** (growth / 2))
    hierarchy = Hierarchy.cold(k, basis)
    for _ in range(3):
        fit = refit(info, hierarchy, basis)
        assert fit.status is FitStatus.CONVERGED
        hierarchy = fit.hierarchy


def test_a_rare_workload_borrows_from_its_siblings_and_a_rich_one_does_not() -> None:
    """With little evidence a workload lies between its own estimate and the pair; with much it lies at its own."""
    basis, k = SplineBasis(()), 2
    info = random_information(np.random.default_rng(3), 6, k, basis, 20_000, spread=0.1)
    odd = random_information(np.random.default_rng(8), 1, k, basis, 20_000)
    H, _ = one_quadratic(odd, basis, 0)
    target = np.array([0.4, 1.8, 1.8])
    distance = []
    for weight in (1e-4, 1e-2, 1.0):
        e = weight * (H @ target)
        rare = Information(*(weight * a for a in odd.arrays().values()))
        rare.e0[0], rare.e1[0] = e[:1], e[1:]
        joint = Information(
            *(np.concatenate([a, b]) for a, b in zip(info.arrays().values(), rare.arrays().values(), strict=True))
        )
        fit = refit(joint, Hierarchy.cold(k, basis), basis)
        distance.append(abs(fit.intercepts[-1].mean() - 1.8))
    assert distance[0] > 1.0
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.02


def test_intervals_cover_the_truth() -> None:
    """Over truths drawn from the model itself, 95% intervals hold 90% to 99% of the true coefficients."""
    basis, k, workloads, labels = SplineBasis((2.0,)), 3, 5, 600
    inside: list[np.ndarray] = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sd = np.sqrt(prior_slope_variance(2))
        pair, shape = np.array([0.5, -0.1]), rng.normal(0.0, 0.3, k)
        truth = np.concatenate(
            [
                pair + sd * rng.normal(size=(workloads, 2)),
                rng.normal(-0.2, 0.4, (workloads, 1)) + shape - shape.mean() + rng.normal(0, 0.15, (workloads, k)),
            ],
            axis=1,
        )
        f, position = rng.normal(1.5, 2.5, (workloads, labels)), rng.integers(0, k, (workloads, labels))
        design = np.concatenate([basis.expand(f), np.eye(k)[position]], axis=2)
        y = rng.random((workloads, labels)) < sigmoid(np.einsum("wnp,wp->wn", design, truth))
        theta, hierarchy = np.tile([0.5, 0.0] + [-0.2] * k, (workloads, 1)), Hierarchy.cold(k, basis)
        for _ in range(6):
            info = quadratics(design, y, theta, basis)
            fit = refit(info, hierarchy, basis)
            theta, hierarchy = np.concatenate([fit.slopes, fit.intercepts], axis=1), fit.hierarchy
        error = np.concatenate([fit.slope_errors, fit.intercept_errors], axis=1)
        inside.append(np.abs(theta - truth) <= 1.96 * error)
    share = np.mean(inside, axis=(0, 1))
    assert np.all((share >= 0.90) & (share <= 0.99)), share


def quadratics(design: Array, y: np.ndarray, theta: Array, basis: SplineBasis) -> Information:
    """The exact information form of raw labels at theta [W, F + K]."""
    p = sigmoid(np.einsum("wnp,wp->wn", design, theta))
    H = np.einsum("wn,wnp,wnq->wpq", p * (1.0 - p), design, design)
    e = np.einsum("wn,wnp->wp", y - p, design) + np.einsum("wpq,wq->wp", H, theta)
    F, (rows, cols) = basis.size, basis.triangle
    return Information(H[:, rows, cols], H[:, F:, :F], np.einsum("wii->wi", H)[:, F:], e[:, :F].copy(), e[:, F:].copy())


def test_state_of_the_pair_is_carried_not_recomputed() -> None:
    """The variances move from where the last refit left them, so that they are learnt over many refits."""
    basis = SplineBasis(())
    info = random_information(np.random.default_rng(1), 12, 2, basis, 20_000, spread=1.5)
    first = refit(info, Hierarchy.cold(2, basis), basis).hierarchy
    second = refit(info, first, basis).hierarchy
    assert first.level_variance > LEVEL_VARIANCE
    assert second.level_variance != first.level_variance
    again = refit(info, replace(first), basis).hierarchy
    assert again.level_variance == second.level_variance
