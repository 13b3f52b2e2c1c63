from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import Engine, dense_hessian, engines, few, random_step, row, seeds, some

from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients
from accord.learner.irls import LogisticLoss
from accord.learner.request_effect import DISCOUNT, VARIANCE_GRID


class Loop:
    """The same sums as an `Accumulator`, label by label in plain Python."""

    def __init__(self, a: Accumulator) -> None:
        self.a, self.knots = a, a.basis.knots
        self.sums: dict[tuple[object, ...], float] = defaultdict(float)
        self.R: dict[int, float] = defaultdict(float)
        self.V: dict[int, float] = defaultdict(float)

    def observe(
        self, features: np.ndarray, slots: np.ndarray, requests: np.ndarray, acc: np.ndarray, adm: np.ndarray
    ) -> None:
        """One decode step."""
        for i, (w, q) in enumerate(zip(slots.tolist(), requests.tolist(), strict=True)):
            u = {s2: self.R[q] / (self.V[q] + 1.0 / s2) if s2 else 0.0 for s2 in VARIANCE_GRID}
            s2 = float(self.a.variance[w])
            own = self.R[q] / (self.V[q] + 1.0 / s2) if s2 else 0.0
            survival, labels, R, V = 1.0, 0, 0.0, 0.0
            weight = 1.0 / (1.0 + self.a.working_variance * self.V[q])
            for k in range(adm[i]):
                f = min(max(float(features[i, k]), -40.0), 40.0)
                x = [f, *(max(f - t, 0.0) for t in self.knots)]
                z = sum(s * v for s, v in zip(self.a.slopes[w], x, strict=True)) + self.a.intercepts[w, k]
                survival /= 1.0 + math.exp(-(z + own))
                place = min(int(survival * 20), 19)
                for channel, value in enumerate((1.0, survival, float(k < acc[i]))):
                    self.sums["survival", w, k, place, channel] += value
                if k > acc[i]:
                    continue
                y = 1.0 if k < acc[i] else 0.0
                p = 1.0 / (1.0 + math.exp(-z))
                v, r = p * (1.0 - p), y - p
                labels, R, V = labels + 1, R + r, V + v
                place = min(max(math.floor((f + 4.0) / 0.25), 0), 63)
                for channel, value in enumerate((1.0, y, f)):
                    self.sums["acceptance", w, k, place, channel] += value
                self._label(w, k, x, y, weight * v, weight * r)
                for g, s2_grid in enumerate(VARIANCE_GRID):
                    shifted = z + u[s2_grid]
                    self.sums["loss", w, g] += math.log1p(math.exp(-shifted if y else shifted))
            self.R[q] = DISCOUNT**labels * self.R[q] + R
            self.V[q] = DISCOUNT**labels * self.V[q] + V

    def _label(self, w: int, k: int, x: list[float], y: float, v: float, r: float) -> None:
        place = 0
        for i in range(len(x)):
            for j in range(i, len(x)):
                self.sums["A", w, place] += v * x[i] * x[j]
                place += 1
            self.sums["B", w, k, i] += v * x[i]
            self.sums["g0", w, i] += r * x[i]
        for name, value in (("c", v), ("g1", r), ("n", 1.0), ("y", y)):
            self.sums[name, w, k] += value

    def check(self) -> None:
        """Compares every sum with the accumulator's."""
        a = self.a
        found = a.moments.arrays() | {"acceptance": a.sketch.acceptance, "survival": a.sketch.survival}
        for name, array in found.items():
            expected = np.zeros(array.shape)
            for key, value in self.sums.items():
                if key[0] == name:
                    expected[key[1:]] = value
            np.testing.assert_allclose(array, expected, rtol=1e-10, atol=1e-10, err_msg=name)
        for q in range(len(a.effects.residual)):
            assert a.effects.residual[q] == pytest.approx(self.R[q], abs=1e-10)
            assert a.effects.curvature[q] == pytest.approx(self.V[q], abs=1e-10)


@given(engines(), st.integers(1, 6))
@some
def test_every_sum_matches_a_loop_over_labels(engine: Engine, steps: int) -> None:
    """Moments, loss grid, sketches and request effects are those of a loop over the labels, whatever the shapes."""
    a, loop = engine.accumulator, Loop(engine.accumulator)
    engine.apply_random()
    for _ in range(steps):
        step = random_step(engine.rng, engine.k, len(engine.keys), engine.requests, engine.truth, engine.basis)
        a.observe(*step.arguments)
        loop.observe(*step.arguments)
    loop.check()


def test_requests_of_one_workload_in_one_step_all_count() -> None:
    """Several requests in the same workload slot add up within one step."""
    a = Accumulator(1, SplineBasis(()), 1, 5)
    same = np.zeros(5, dtype=np.intp)
    a.observe(np.full((5, 1), 0.4), same, np.arange(5), np.array([1, 1, 1, 0, 0]), np.ones(5, dtype=int))
    assert a.moments.n.tolist() == [[5.0]]
    assert a.moments.y.tolist() == [[3.0]]
    assert a.moments.g1[0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("accepted", "admitted", "labels"),
    [(0, 0, [0, 0, 0]), (0, 1, [1, 0, 0]), (1, 1, [1, 0, 0]), (1, 3, [1, 1, 0]), (2, 2, [1, 1, 0]), (3, 3, [1, 1, 1])],
)
def test_labels_reach_to_the_first_rejection_and_no_further_than_what_was_verified(
    accepted: int, admitted: int, labels: list[int]
) -> None:
    """Trimmed positions and positions behind a rejection have no label; survival is known wherever it was verified."""
    a = Accumulator(3, SplineBasis(()), 1, 1)
    zero = np.zeros(1, dtype=np.intp)
    a.observe(np.ones((1, 3)), zero, zero, [accepted], [admitted])
    assert a.moments.n[0].tolist() == labels
    assert a.moments.y.sum() == accepted
    assert a.sketch.survival[..., 0].sum() == admitted
    assert a.sketch.survival[..., 2].sum() == accepted
    assert (a.effects.curvature[0] > 0.0) == (admitted > 0)


def test_an_empty_step_teaches_nothing() -> None:
    """A step without requests leaves every sum at zero."""
    a = Accumulator(2, SplineBasis(), 1, 1)
    none = np.zeros(0, dtype=np.intp)
    a.observe(np.zeros((0, 2)), none, none, none, none)
    assert all(not array.any() for array in a.drain().arrays().values())


@given(engines(), st.integers(1, 5))
@few
def test_moments_are_gradient_and_hessian_of_the_log_likelihood(engine: Engine, steps: int) -> None:
    """The sums are the gradient and the Hessian of the raw labels' log-loss, which finite differences confirm."""
    engine.apply_random()
    a, raw = engine.accumulator, []
    a.working_variance = 0.0
    for _ in range(steps):
        step = random_step(engine.rng, engine.k, len(engine.keys), engine.requests, engine.truth, engine.basis)
        a.observe(*step.arguments)
        for i, w in enumerate(step.slots):
            last = min(step.accepted[i] + 1, step.admitted[i])
            raw += [(w, step.features[i, k], k, float(k < step.accepted[i])) for k in range(last)]
    for w in {int(line[0]) for line in raw}:
        f, position, y = (np.array(column) for column in zip(*(line[1:] for line in raw if line[0] == w), strict=True))
        loss, n = LogisticLoss(engine.basis, engine.k, f, position, y), len(f)
        theta, F = np.append(a.slopes[w], a.intercepts[w]), engine.basis.size

        def gradient(t: np.ndarray, loss: LogisticLoss = loss, F: int = F, n: int = n) -> np.ndarray:
            return -np.concatenate(loss.gradient(t[:F], t[F:])) * n

        found = np.append(a.moments.g0[w], a.moments.g1[w])
        np.testing.assert_allclose(found, gradient(theta), rtol=1e-9, atol=1e-9)
        h = 1e-5
        for axis in np.eye(len(theta)):
            up, down = theta + h * axis, theta - h * axis
            slope = -(loss.data_loss(up[:F], up[F:]) - loss.data_loss(down[:F], down[F:])) * n / (2 * h)
            assert found @ axis == pytest.approx(slope, rel=1e-5, abs=1e-4)
            bend = -(gradient(up) - gradient(down)) / (2 * h)
            np.testing.assert_allclose(dense_hessian(a.moments, engine.basis, w) @ axis, bend, rtol=1e-5, atol=2e-3)


@given(engines(), seeds)
@some
def test_predictions_include_the_effect_of_their_request(engine: Engine, seed: int) -> None:
    """P(accept) is the sigmoid of slopes, intercept and the request's own shift; without variance the shift is gone."""
    engine.apply_random()
    engine.round(5)
    a, rng = engine.accumulator, np.random.default_rng(seed)
    step = random_step(rng, engine.k, len(engine.keys), engine.requests, engine.truth, engine.basis)
    p = a.predict(step.features, step.slots, step.requests)
    for i, (w, q) in enumerate(zip(step.slots, step.requests, strict=True)):
        u = a.effects.shift(np.array([q]), a.variance[w])[0]
        line = Coefficients(a.slopes[w], a.intercepts[w] + u).probability(engine.basis, step.features[i])
        np.testing.assert_allclose(p[i], line, rtol=1e-10)
    a.variance[:] = 0.0
    rows = [Coefficients(s, b) for s, b in zip(a.slopes, a.intercepts, strict=True)]
    plain = [rows[w].probability(engine.basis, f) for w, f in zip(step.slots, step.features, strict=True)]
    np.testing.assert_allclose(a.predict(step.features, step.slots, step.requests), plain, rtol=1e-10)


@given(seeds)
@some
def test_a_verdict_does_not_change_its_own_prediction(seed: int) -> None:
    """The loss of a label is taken at the effect known before its step, as the engine predicted it."""
    rng, basis = np.random.default_rng(seed), SplineBasis(())
    losses = []
    for accepted in (0, 2):
        a = Accumulator(2, basis, 1, 1)
        a.apply([row(np.random.default_rng(seed), 2, basis, 0.4)])
        zero = np.zeros(1, dtype=np.intp)
        a.observe(np.ones((1, 2)), zero, zero, [accepted], [2])
        losses.append(a.moments.loss[0])
    assert rng is not None
    assert all(np.ptp(loss) == 0.0 for loss in losses)


def test_draining_starts_a_new_round_and_keeps_the_requests() -> None:
    """Sums go out once; what is known of live requests, and the coefficients, stay."""
    engine = Engine(3)
    first = engine.round(10)
    assert first.moments.n.sum() > 0
    assert engine.accumulator.moments.n.sum() == 0
    assert engine.accumulator.sketch.acceptance.sum() == 0
    assert engine.accumulator.effects.curvature.any()


def test_extreme_features_stay_finite() -> None:
    """Infinite features and saturated probabilities leave finite sums."""
    a = Accumulator(2, SplineBasis(), 1, 2)
    a.apply([Coefficients(np.array([40.0, 0.0, 0.0, 0.0]), np.array([40.0, -40.0]), 0.4)])
    slots, requests = np.zeros(2, dtype=np.intp), np.arange(2)
    a.observe([[np.inf, -np.inf], [-np.inf, np.inf]], slots, requests, [0, 1], [2, 2])
    assert all(np.all(np.isfinite(array)) for array in a.moments.arrays().values())
    assert a.moments.loss.max() > 1_000.0
