"""What other coefficients would have been worth."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.learner.basis import DEFAULT_KNOTS, SplineBasis, sigmoid, softplus
from accord.learner.calibration import Cells, metrics
from accord.learner.coefficients import Coefficients
from accord.learner.errors import Refusal
from accord.learner.evaluate.synthetic import Source, synthetic
from accord.learner.evaluate.trace import Trace
from accord.learner.guard import MIN_JUDGED_LABELS
from accord.learner.sketch import Sketch
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.what_if import IMMATERIAL_NATS, Verdict, assess, assess_state, expected_accepted

LINE = SplineBasis(())
TRUTH = Coefficients([0.6], [0.2, 0.0, -0.2, -0.3])


def stream(truth: Coefficients = TRUTH, *, steps: int = 400, seed: int = 0) -> Trace:
    """An engine's life with one workload of known coefficients."""
    return synthetic([Source("chat:hot", truth)], k=truth.k, steps=steps, seed=seed).trace


def sketch_of(trace: Trace, workload: int = 0) -> np.ndarray:
    """The acceptance sketch [K, 64, 3] of a workload of a trace."""
    sketch, features = Sketch.zeros(len(trace.workloads), trace.k), trace.features.astype(np.float64)
    sketch.observe(trace.workload, features, np.zeros(features.shape), trace.accepted, trace.labelled, trace.labelled)
    return sketch.acceptance[workload]


def exact_difference(trace: Trace, proposed: Coefficients, in_force: Coefficients) -> tuple[float, float]:
    """Mean paired difference of log-loss and its standard error, from the labels themselves."""
    f, y, mask = trace.features.astype(np.float64), trace.y, trace.labelled
    sign = np.where(y, -1.0, 1.0)
    d = (softplus(sign * proposed.log_odds(LINE, f)) - softplus(sign * in_force.log_odds(LINE, f)))[mask]
    return float(d.mean()), float(d.std() / math.sqrt(len(d)))


def chain(trace: Trace, row: Coefficients, basis: SplineBasis, workload: int = 0) -> tuple[float, float]:
    """Expected accepted drafts of a block, by the sketch and from every block itself."""
    f = trace.features[trace.workload == workload].astype(np.float64)
    exact = float(np.cumprod(row.probability(basis, f), axis=1).sum(axis=1).mean())
    found = expected_accepted(trace.k, Cells.of(sketch_of(trace, workload), row, basis))
    assert found is not None
    return found, exact


@pytest.mark.parametrize("shift", [-0.5, 0.1, 1.0])
def test_the_difference_and_its_noise_are_those_of_the_labels(shift: float) -> None:
    """Difference and noise from the sketch agree with the paired test on the labels themselves."""
    trace = stream()
    other = Coefficients(TRUTH.slopes * 0.8, TRUTH.intercepts + shift)
    found = assess(sketch_of(trace), other, TRUTH, LINE)
    mean, error = exact_difference(trace, other, TRUTH)
    assert found.labels == trace.labels
    assert found.difference is not None
    assert found.difference.log_loss == pytest.approx(mean, abs=5e-4)
    assert found.difference.noise == pytest.approx(error, rel=0.02)


def test_both_rows_have_the_metrics_of_the_calibration() -> None:
    """Each row's metrics are those that the calibration gives at it, and so are the learner's own."""
    sketch = sketch_of(stream())
    rows = [Coefficients([0.3], [0.5] * 4), Coefficients([0.9], [0.0] * 4), TRUTH]
    found = assess(sketch, rows[0], rows[1], LINE, rows[2])
    for said, row in zip((found.proposed, found.in_force, found.learnt), rows, strict=True):
        assert said is not None
        wanted = metrics(Cells.of(sketch, row, LINE))
        assert {name: getattr(said, name) for name in wanted} == wanted


@given(st.integers(0, 1000), st.floats(-1.5, 1.5), st.floats(0.1, 1.2))
@settings(max_examples=25, deadline=None)
def test_swapping_the_rows_turns_the_verdict_round(seed: int, shift: float, scale: float) -> None:
    """What is worse one way round is better the other, by the same amount and noise."""
    sketch = sketch_of(stream(steps=40, seed=seed))
    other = Coefficients(TRUTH.slopes * scale, np.clip(TRUTH.intercepts + shift, -5, 5))
    there, back = assess(sketch, other, TRUTH, LINE), assess(sketch, TRUTH, other, LINE)
    opposite = {Verdict.WORSE: Verdict.BETTER, Verdict.BETTER: Verdict.WORSE}
    assert back.verdict is opposite.get(there.verdict, Verdict.NO_DIFFERENCE)
    assert there.difference is not None
    assert back.difference is not None
    assert back.difference.log_loss == pytest.approx(-there.difference.log_loss)
    assert back.difference.noise == pytest.approx(there.difference.noise)
    assert there.proposed == back.in_force


def test_a_bad_row_is_worse_and_a_better_one_better() -> None:
    """Against the truth a shifted row is worse and the message says by how much; the truth against it is better."""
    sketch, bad = sketch_of(stream()), Coefficients(TRUTH.slopes, TRUTH.intercepts + 0.8)
    worse, better = assess(sketch, bad, TRUTH, LINE), assess(sketch, TRUTH, bad, LINE)
    assert (worse.verdict, better.verdict) == (Verdict.WORSE, Verdict.BETTER)
    assert worse.difference is not None
    assert worse.difference.log_loss > 0.0
    assert f"{worse.difference.log_loss:.3f} nats per label worse" in worse.message
    assert f"{worse.labels:,.0f} recent labels" in worse.message
    assert better.difference is not None
    assert better.difference.log_loss < 0.0


def test_the_truth_is_seldom_called_worse() -> None:
    """Of a hundred fresh streams, at most two call the truth worse than a row that hardly differs, or the reverse."""
    near = Coefficients(TRUTH.slopes, TRUTH.intercepts + 0.02)
    verdicts = [assess(sketch_of(stream(steps=20, seed=seed)), near, TRUTH, LINE).verdict for seed in range(100)]
    assert sum(verdict is not Verdict.NO_DIFFERENCE for verdict in verdicts) <= 2


def test_the_same_row_makes_no_difference() -> None:
    """A row against itself, or one that differs by a rounding, is no difference, whatever the noise."""
    sketch = sketch_of(stream())
    for row in (TRUTH, Coefficients(TRUTH.slopes, TRUTH.intercepts + 1e-7)):
        found = assess(sketch, row, TRUTH, LINE)
        assert found.verdict is Verdict.NO_DIFFERENCE
        assert found.difference is not None
        assert abs(found.difference.log_loss) < IMMATERIAL_NATS
        assert found.message.startswith("no difference that")


@pytest.mark.parametrize("labels", [0.0, 1.0, MIN_JUDGED_LABELS - 1.0])
def test_few_labels_decide_nothing(labels: float) -> None:
    """Below the least number of labels there are no metrics and no verdict, and the message says why."""
    sketch = np.zeros((4, 64, 3))
    sketch[0, 30] = [labels, 0.0, 3.6 * labels]
    found = assess(sketch, Coefficients([0.6], [5.0] * 4), TRUTH, LINE, TRUTH)
    assert (found.verdict, found.difference, found.labels) == (Verdict.NO_DIFFERENCE, None, labels)
    assert set(vars(found.proposed).values()) == set(vars(found.in_force).values()) == {None}
    assert "too few" in found.message
    assert [line["labels"] for line in found.positions] == [labels, 0.0, 0.0, 0.0]


def test_positions_show_what_happened_and_both_predictions() -> None:
    """Every position shows its labels, accepted share and both rows' mean predictions."""
    trace = stream()
    other = Coefficients([0.2], [1.0] * 4)
    found = assess(sketch_of(trace), other, TRUTH, LINE)
    for k, line in enumerate(found.positions):
        mask = trace.labelled[:, k]
        f = trace.features[mask, k].astype(np.float64)
        assert line["position"] == k
        assert line["labels"] == mask.sum()
        assert line["accepted"] == pytest.approx(trace.y[mask, k].mean())
        assert line["proposed"] == pytest.approx(sigmoid(0.2 * f + 1.0).mean(), abs=1e-3)
        assert line["in_force"] == pytest.approx(sigmoid(0.6 * f + TRUTH.intercepts[k]).mean(), abs=1e-3)


def test_expected_length_is_the_realised_one_at_the_truth() -> None:
    """At the true coefficients the expected accepted drafts of a block are those that were accepted."""
    trace = stream(steps=1500)
    found = assess(sketch_of(trace), TRUTH, TRUTH, LINE)
    assert found.realised_per_step == pytest.approx(trace.accepted.mean(), abs=1e-9)
    assert found.in_force.accepted_per_step == pytest.approx(trace.accepted.mean(), abs=0.02)


@given(st.floats(0.0, 1.5), st.floats(-2.0, 2.0), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_expected_length_on_simulated_streams(slope: float, intercept: float, seed: int) -> None:
    """Any row's expected length lies within 0.05 drafts of that over every simulated block, seen and unseen."""
    found, exact = chain(stream(steps=150, seed=seed), Coefficients([slope], [intercept] * 4), LINE)
    assert found == pytest.approx(exact, abs=0.05)


def test_expected_length_on_a_recorded_trace() -> None:
    """On recorded traffic a fitted row expects the realised length, and any other row that of its own predictions."""
    trace = Trace.bundled()
    for workload in range(len(trace.workloads)):
        for row in (Coefficients([s], [b] * 7) for s in (0.0, 0.3, 0.8) for b in (-1.0, 0.0, 1.0)):
            found, exact = chain(trace, row, LINE, workload)
            assert found == pytest.approx(exact, abs=0.15)
        found, _ = chain(trace, fit(trace, workload), SplineBasis(DEFAULT_KNOTS), workload)
        assert found == pytest.approx(trace.accepted[trace.workload == workload].mean(), abs=0.05)


def fit(trace: Trace, workload: int) -> Coefficients:
    """Maximum likelihood over the default basis, by Newton steps with a small ridge."""
    basis, k = SplineBasis(DEFAULT_KNOTS), trace.k
    mask = trace.labelled & (trace.workload == workload)[:, None]
    row, position = np.nonzero(mask)
    x = np.hstack([basis.expand(trace.features[row, position]), np.eye(k)[position]])
    y = trace.y[row, position].astype(np.float64)
    theta = np.zeros(x.shape[1])
    for _ in range(30):
        p = sigmoid(x @ theta)
        hessian = (x * (p * (1.0 - p))[:, None]).T @ x + np.eye(len(theta))
        theta += np.linalg.solve(hessian, x.T @ (y - p) - theta)
    slopes = np.diff(np.maximum(np.cumsum(theta[: basis.size]), 0.0), prepend=0.0)
    return Coefficients(slopes, theta[basis.size :])


def test_a_certain_row_expects_everything_or_nothing() -> None:
    """Rows at the limits stay finite: one expects all K drafts, one none."""
    sketch = sketch_of(stream())
    sure, never = Coefficients([0.0], [40.0] * 4), Coefficients([0.0], [-40.0] * 4)
    found = assess(sketch, sure, never, LINE)
    assert found.proposed.accepted_per_step == pytest.approx(4.0)
    assert found.in_force.accepted_per_step == pytest.approx(0.0, abs=1e-12)
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_request_effect_is_said_to_be_left_out() -> None:
    """Another request_variance changes no figure, and the answer says that it was not judged."""
    sketch = sketch_of(stream())
    other = Coefficients(TRUTH.slopes, TRUTH.intercepts, 0.2)
    found, same = assess(sketch, other, TRUTH, LINE), assess(sketch, TRUTH, TRUTH, LINE)
    assert found.proposed == same.proposed
    assert same.notes == []
    assert len(found.notes) == 1
    assert "request_variance 0.2 against 0 in force is not judged" in found.notes[0]


def test_a_state_is_judged_with_its_own_fit_beside() -> None:
    """From a learnt state the workload's sketch is taken and its last fit judged; an unseen workload has no labels."""
    learnt = Learnt.new("p", TRUTH.k, ())
    state = learnt.state
    state.reserve(["code:greedy", "chat:hot"])
    state.arrays["acceptance"][1] = sketch_of(stream())
    state.arrays["slopes"][1], state.arrays["intercepts"][1] = TRUTH.slopes, TRUTH.intercepts
    body, row = encode_learnt(learnt), Coefficients([0.4], [0.0] * 4)
    found = assess_state(body, "chat:hot", row, row, LINE)
    assert found.learnt == assess(state.arrays["acceptance"][1], TRUTH, TRUTH, LINE).proposed
    for unseen in (assess_state(body, "math:hot", row, row, LINE), assess_state(None, "chat:hot", row, row, LINE)):
        assert (unseen.labels, unseen.learnt, len(unseen.positions)) == (0.0, None, 4)
    with pytest.raises(Refusal):
        assess_state(b"junk", "chat:hot", row, row, LINE)
