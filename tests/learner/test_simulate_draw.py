"""The model of acceptance given the token drawn, and what hindsight earns with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accord.learner.basis import SplineBasis, logit, sigmoid
from accord.learner.coefficients import Coefficients
from accord.learner.errors import InvalidValue
from accord.learner.evaluate.synthetic import Source, synthetic
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import DraftSampling
from accord.learner.simulate.cost import Roofline
from accord.learner.simulate.draw_model import COMMON_RIDGE, SIZE, WORKLOAD_RIDGE, DrawModel, expand
from accord.learner.simulate.loop import simulate_trace
from accord.learner.simulate.policies import Drafts, Hindsight
from accord.learner.simulate.scores import running_minimum, survival

K = 4


def drawn_trace(*, key: str = "chat:sampled", steps: int = 300, seed: int = 0) -> Trace:
    """A trace whose acceptance depends on the draw: 0.95 for the most likely token, 0.35 for any of eight others."""
    made = synthetic([Source(key, Coefficients(np.array([0.5]), np.zeros(K)))], k=K, concurrency=16, steps=steps)
    rng = np.random.default_rng(seed)
    q_max = sigmoid(made.trace.features)
    top = rng.random(q_max.shape) < q_max
    q = np.where(top, q_max, (1.0 - q_max) / 8.0)
    accept = rng.random(q_max.shape) < np.where(top, 0.95, 0.35)
    accepted = np.cumprod(accept, axis=1).sum(axis=1).astype(np.int64)
    return replace(made.trace, accepted=accepted, q_sampled=q.astype(np.float32))


def test_one_refit_is_one_ridge_newton_step() -> None:
    """From no correction, theta solves (H + ridge) theta = g for all traffic, and then for each workload around it."""
    trace = drawn_trace(steps=40)
    model = DrawModel(trace.pair, trace.workloads)
    p = sigmoid(0.5 * trace.features.astype(np.float64))
    admitted = np.random.default_rng(1).integers(0, K + 1, trace.rows)
    accepted = np.minimum(trace.accepted, admitted)
    assert trace.q_sampled is not None
    model.observe(p, trace.features, trace.q_sampled, trace.workload, accepted, admitted)
    model.refit()

    position = np.arange(K)
    labelled = (position <= accepted[:, None]) & (position < admitted[:, None])
    x, p_ = expand(trace.features, trace.q_sampled)[labelled], p[labelled]
    y = (position < accepted[:, None])[labelled]
    H, g = (x * (p_ * (1.0 - p_))[:, None]).T @ x, x.T @ (y - p_)
    common = np.linalg.solve(H + COMMON_RIDGE * np.eye(SIZE), g)
    own = np.linalg.solve(H + WORKLOAD_RIDGE * np.eye(SIZE), g + WORKLOAD_RIDGE * common)
    np.testing.assert_allclose(model.theta[0], own, rtol=1e-8)


def test_it_learns_what_a_draw_tells() -> None:
    """After some rounds the two kinds of draw are told apart within 0.05 of their true acceptance."""
    trace = drawn_trace(steps=400)
    model = DrawModel(trace.pair, trace.workloads)
    assert trace.q_sampled is not None
    p = sigmoid(0.5 * trace.features.astype(np.float64))
    admitted = np.full(trace.rows, K)
    for rows in np.array_split(np.arange(trace.rows), 8):
        step = p[rows], trace.features[rows], trace.q_sampled[rows], trace.workload[rows]
        model.observe(*step, trace.accepted[rows], admitted[rows])
        model.refit()
    given = model.predict(p, trace.features, trace.q_sampled, trace.workload)
    top = np.abs(logit(trace.q_sampled) - trace.features) < 1e-3
    sure = trace.features > 0.0
    assert abs(given[top & sure].mean() - 0.95) < 0.05
    assert abs(given[~top & sure].mean() - 0.35) < 0.05


@pytest.mark.parametrize("kind", ["class", "pair"])
def test_a_greedy_draft_has_no_hindsight(kind: str) -> None:
    """For greedy requests, and for a drafter that is always greedy, the scores are those of plain survival."""
    trace = drawn_trace(key="chat:greedy" if kind == "class" else "chat:sampled", steps=40)
    if kind == "pair":
        trace = replace(trace, pair=replace(trace.pair, draft_sampling=DraftSampling.GREEDY))
    assert trace.q_sampled is not None
    model = DrawModel(trace.pair, trace.workloads)
    p = sigmoid(0.5 * trace.features.astype(np.float64))
    model.observe(p, trace.features, trace.q_sampled, trace.workload, trace.accepted, np.full(trace.rows, K))
    model.refit()
    np.testing.assert_array_equal(model.predict(p, trace.features, trace.q_sampled, trace.workload), p)


def test_before_anything_is_learnt_hindsight_is_plain_survival() -> None:
    """The first step is scored by the running minimum of survival at the cold coefficients."""
    trace = drawn_trace(steps=5)
    rows = next(trace.steps())
    assert trace.q_sampled is not None
    drafts = Drafts(rows, trace.features[rows], trace.workload[rows], np.arange(16), trace.q_sampled[rows])
    cold = Coefficients.cold(K, SplineBasis(())).probability(SplineBasis(()), trace.features[rows])
    np.testing.assert_allclose(Hindsight(trace).scores(drafts), running_minimum(survival(cold)), rtol=1e-9)


def test_hindsight_earns_where_draws_tell_much() -> None:
    """On a trace whose acceptance hangs on the draw, hindsight gives at least 0.5% more tokens per cost."""
    out = simulate_trace(drawn_trace(steps=500), Roofline(6.0, 0.06, 16.0), ["accord", "accord-hindsight"]).outcomes
    assert out["accord-hindsight"].tokens_per_cost > 1.005 * out["accord"].tokens_per_cost


def test_hindsight_needs_to_know_the_draws() -> None:
    """A trace without q_sampled has no hindsight, and says so."""
    with pytest.raises(InvalidValue, match=r"accord-hindsight.*needs a trace with q_sampled"):
        simulate_trace(replace(drawn_trace(steps=5), q_sampled=None), Roofline(), ["accord-hindsight"])
