"""`accord evaluate`: synthetic truth, vLLM's rule, predictors, the prequential order, report and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from accord.learner.basis import SplineBasis, sigmoid
from accord.learner.coefficients import Coefficients
from accord.learner.errors import InvalidValue
from accord.learner.evaluate.command import evaluate
from accord.learner.evaluate.metrics import METRICS
from accord.learner.evaluate.predictors import PREDICTORS, Accord, Batch, Vllm
from accord.learner.evaluate.prequential import evaluate_trace, replay
from accord.learner.evaluate.report import tables
from accord.learner.evaluate.synthetic import Source, Synthetic, synthetic
from accord.learner.evaluate.trace import Trace
from accord.learner.evaluate.vllm_rule import DAMPING, RIDGE, VllmRule
from accord.learner.irls import LogisticLoss, fit_logistic

KEYS = ("chat:sampled", "code:greedy")


def mixture(*, steps: int = 300, concurrency: int = 16, variance: float = 0.0, seed: int = 0) -> Synthetic:
    """Two workloads whose levels differ by 1."""
    sources = [
        Source(key, Coefficients(np.array([0.5]), np.full(4, level), variance))
        for key, level in zip(KEYS, (-0.5, 0.5), strict=True)
    ]
    return synthetic(sources, k=4, steps=steps, concurrency=concurrency, seed=seed)


def run(trace: Trace, *names: str) -> Any:
    """The evaluation of fresh predictors."""
    return evaluate_trace(trace, {name: PREDICTORS[name](trace, (0.0, 2.0, 4.0)) for name in names})


def test_a_synthetic_trace_follows_its_truth() -> None:
    """Acceptance at every position matches the true probability within its noise, and a seed gives the same trace."""
    made = mixture(steps=1500)
    trace, p = made.trace, sigmoid(made.log_odds)
    for k in range(trace.k):
        mask = trace.labelled[:, k]
        noise = np.sqrt((p * (1.0 - p))[mask, k].sum())
        assert abs(trace.y[mask, k].sum() - p[mask, k].sum()) < 4.0 * noise
    again = mixture(steps=1500)
    np.testing.assert_array_equal(again.trace.accepted, trace.accepted)
    assert float(trace.features.min()) >= -3.0
    assert float(trace.features.max()) <= 12.0


def test_request_effects_have_the_variance_asked_for() -> None:
    """The true log-odds scatter between requests of a workload by the request variance."""
    plain, spread = mixture(steps=2000, seed=3), mixture(steps=2000, variance=0.25, seed=3)
    shift = (spread.log_odds - plain.log_odds)[:, 0]
    _, first = np.unique(spread.trace.request, return_index=True)
    assert np.var(shift[first]) == pytest.approx(0.25, rel=0.15)


def test_a_source_that_does_not_fit_is_refused() -> None:
    """Coefficients of another K or basis are InvalidValue."""
    source = Source("chat:sampled", Coefficients(np.array([0.5]), np.zeros(4)))
    with pytest.raises(InvalidValue, match="chat:sampled"):
        synthetic([source], k=5)
    with pytest.raises(InvalidValue, match="chat:sampled"):
        synthetic([source], k=4, basis=SplineBasis((0.0,)))


def test_vllms_rule_takes_one_damped_newton_step_per_window() -> None:
    """After 100 steps the slope is the dense Newton solution damped by n / (n + 50), and the intercepts follow it."""
    trace = mixture(steps=100).trace
    rule = VllmRule(trace.k)
    before = rule.predict(trace.features)
    for rows in trace.steps():
        rule.observe(trace.features[rows], trace.accepted[rows], np.full(rows.stop - rows.start, trace.k))
    row, k = np.nonzero(trace.labelled)
    p, y, f = before[row, k], trace.y[row, k], trace.features[row, k].astype(float)
    x = np.column_stack([f, np.eye(trace.k)[k]])
    v, r = p * (1.0 - p), y - p
    n = np.bincount(k, minlength=trace.k)
    full = np.linalg.solve(x.T @ (v[:, None] * x) + RIDGE * np.eye(1 + trace.k), x.T @ r)
    damped = full[0] * n.sum() / (n.sum() + DAMPING)
    assert rule.slope == pytest.approx(0.5 + damped, abs=1e-10)
    by_position = [np.bincount(k, weights=w, minlength=trace.k) for w in (r, v * f, v)]
    expected = (by_position[0] - by_position[1] * damped) / (by_position[2] + RIDGE) * n / (n + DAMPING)
    np.testing.assert_allclose(rule.intercepts, -0.2 + expected, atol=1e-10)


def test_vllms_rule_never_lets_the_slope_turn_negative() -> None:
    """A window in which confidence misleads leaves the slope where it was."""
    rule = VllmRule(1)
    features = np.array([[8.0], [-3.0]] * 20)
    for _ in range(100):
        rule.observe(features, np.array([0, 1] * 20), np.ones(40, int))
    assert rule.slope == 0.5


def test_vllms_rule_leaves_unverified_drafts_out() -> None:
    """Trimmed positions carry no label: a position that is never admitted keeps its intercept."""
    rule = VllmRule(2)
    for _ in range(100):
        rule.observe(np.full((4, 2), 2.0), np.ones(4, int), np.ones(4, int))
    assert rule.intercepts[1] == -0.2
    assert rule.intercepts[0] != -0.2


def test_every_predictor_predicts_before_it_learns() -> None:
    """Labels from some step on never change an online prediction up to that step."""
    trace = mixture().trace
    half = trace.rows // 2
    other = replace(trace, accepted=np.where(np.arange(trace.rows) < half, trace.accepted, trace.k - trace.accepted))
    for name in set(PREDICTORS) - {"batch"}:
        first, second = (replay(t, {name: PREDICTORS[name](t, ())})[name] for t in (trace, other))
        reach = half + 16
        np.testing.assert_array_equal(first[: half + 1], second[: half + 1], err_msg=name)
        assert np.any(first[reach:] != second[reach:])


def test_before_any_label_all_start_from_the_published_medians() -> None:
    """The first step is predicted with slope 0.5 and intercepts -0.2."""
    trace = mixture().trace
    rows = next(trace.steps())
    slots, requests = trace.workload[rows], np.arange(16)
    expected = sigmoid(0.5 * trace.features[rows].astype(float) - 0.2)
    for predictor in (Vllm(trace), Accord(trace), Accord(trace, (), pooled=True)):
        np.testing.assert_allclose(predictor.predict(trace.features[rows], slots, requests), expected, atol=1e-12)


def test_batch_is_the_maximum_likelihood_of_each_workload() -> None:
    """No straight line fits a workload better than the floor does."""
    trace = mixture().trace
    fitted = Batch(trace).coefficients()
    for slot, key in enumerate(KEYS):
        row, k = np.nonzero(trace.labelled & (trace.workload == slot)[:, None])
        loss = LogisticLoss(SplineBasis(()), trace.k, trace.features[row, k], k, trace.y[row, k])
        best = loss.data_loss(*fitted[key])
        for step in np.vstack([np.eye(5), -np.eye(5)]) * 0.01:
            assert loss.data_loss(fitted[key][0] + step[:1], fitted[key][1] + step[1:]) > best


def test_on_a_stationary_stream_accord_agrees_with_batch_within_its_errors() -> None:
    """With 48,000 verified drafts behind it, every coefficient is within 3 standard errors of the batch fit."""
    trace = mixture(steps=1500, concurrency=32, seed=5).trace
    accord, batch = Accord(trace, ()), Batch(trace)
    replay(trace, {"accord": accord})
    for slot, key in enumerate(KEYS):
        row, k = np.nonzero(trace.labelled & (trace.workload == slot)[:, None])
        fit = fit_logistic(LogisticLoss(SplineBasis(()), trace.k, trace.features[row, k], k, trace.y[row, k]))
        error = np.sqrt(np.diag(fit.covariance))
        gap = np.concatenate(accord.coefficients()[key]) - np.concatenate(batch.coefficients()[key])
        assert np.all(np.abs(gap) < 3.0 * error), (key, gap / error)


def test_telling_workloads_apart_beats_pooling() -> None:
    """On a mixture accord is closer to the floor than the pooled predictors are, overall and per workload."""
    found = run(mixture().trace, "accord", "accord-pooled", "vllm", "batch")
    loss = {name: m.log_loss for name, m in found.overall.items()}
    assert loss["batch"] < loss["accord"] < min(loss["accord-pooled"], loss["vllm"])
    assert found.workload_ece("accord") < 0.6 * found.workload_ece("vllm")


def test_the_request_effect_helps_where_there_is_one() -> None:
    """With random intercepts of variance 0.5 the request effect lowers the log-loss."""
    found = run(mixture(steps=900, variance=0.5).trace, "accord", "accord-no-request")
    assert found.overall["accord"].log_loss < found.overall["accord-no-request"].log_loss


def test_on_the_bundled_trace_accord_beats_vllms_rule() -> None:
    """On real drafts the regret to the floor is a tenth of vLLM's, and the workloads' ECE at most 0.36 of it."""
    found = run(Trace.bundled(), "accord", "vllm", "batch")
    floor = found.overall["batch"].log_loss
    regret = {name: m.log_loss - floor for name, m in found.overall.items()}
    assert regret["accord"] <= 0.10 * regret["vllm"]
    assert found.workload_ece("accord") <= 0.36 * found.workload_ece("vllm")


def test_an_evaluation_needs_rows_and_predictors() -> None:
    """An empty trace and an empty list of predictors are InvalidValue."""
    trace = mixture(steps=2).trace
    with pytest.raises(InvalidValue, match="no rows"):
        run(trace.take(np.zeros(0, int)), "vllm")
    with pytest.raises(InvalidValue, match="predictors"):
        run(trace)


def test_the_json_document_has_the_promised_shape(tmp_path: Path) -> None:
    """`--json` prints pair, overall, workloads with labels, and coefficients of every predictor."""
    trace = mixture(steps=60).trace
    trace.save(tmp_path / "trace.npz")
    result = _invoke("--trace", str(tmp_path / "trace.npz"), "--json")
    document = json.loads(result.stdout)
    assert list(document)[:4] == ["pair", "overall", "workloads", "coefficients"]
    assert set(document) == {*list(document)[:4], "classes", "accepted_per_step", "features"}
    assert document["pair"] == trace.pair.to_dict()
    assert set(document["overall"]) == set(document["coefficients"]) == set(PREDICTORS)
    assert set(document["overall"]["accord"]) == {*METRICS, "labels", "workload_ece"}
    assert set(document["workloads"]) == set(KEYS)
    assert set(document["workloads"][KEYS[0]]) == {"labels", *PREDICTORS}
    assert set(document["workloads"][KEYS[0]]["vllm"]) == set(METRICS)
    assert sum(row["labels"] for row in document["workloads"].values()) == trace.labels
    assert document["classes"] == {key.split(":")[1]: row for key, row in document["workloads"].items()}
    assert document["features"] == ["qmax"]
    assert set(document["accepted_per_step"]["expected"]) == set(PREDICTORS)
    row = document["coefficients"]["accord"][KEYS[1]]
    assert (len(row["slopes"]), len(row["intercepts"])) == (4, 4)
    assert list(document["coefficients"]["vllm"]) == ["default:sampled"]


def test_a_workload_with_one_class_of_labels_has_no_auc(tmp_path: Path) -> None:
    """Where AUC does not exist, JSON holds null and the table a dash."""
    trace = mixture(steps=20).trace
    trace = replace(trace, accepted=np.full(trace.rows, trace.k))
    trace.save(tmp_path / "trace.npz")
    result = _invoke("--trace", str(tmp_path / "trace.npz"), "--json", "--predictors", "vllm,batch")
    assert json.loads(result.stdout)["overall"]["vllm"]["auc"] is None
    assert " - " in _shown(run(trace, "vllm"))


def test_knots_and_predictors_can_be_chosen(tmp_path: Path) -> None:
    """No knots give one slope, and only the predictors asked for are run."""
    mixture(steps=60).trace.save(tmp_path / "trace.npz")
    arguments = ("--trace", str(tmp_path / "trace.npz"), "--json", "--knots", "", "--predictors", "accord, batch")
    document = json.loads(_invoke(*arguments).stdout)
    assert list(document["overall"]) == ["accord", "batch"]
    assert len(document["coefficients"]["accord"][KEYS[0]]["slopes"]) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--predictors", "oracle"), "predictors = 'oracle'"),
        (("--predictors", ""), "predictors = ''"),
        (("--knots", "2,1"), "knots = "),
        (("--trace", "missing.npz"), "trace = 'missing.npz'"),
        (("--by", "label"), "by = 'label'"),
        (("--features", "entropy"), "features = 'entropy'"),
        (("--features", "qmax,entropy"), "features = 'entropy': the trace has none"),
    ],
)
def test_bad_options_are_invalid_values(arguments: tuple[str, ...], expected: str) -> None:
    """What cannot be evaluated is one InvalidValue that names it."""
    result = _invoke(*arguments)
    assert isinstance(result.exception, InvalidValue)
    assert str(result.exception).startswith(expected)


def test_the_table_fits_80_columns() -> None:
    """The tables show every workload and predictor, overall and by position, within 80 columns."""
    text = _shown(run(mixture(steps=60).trace, *PREDICTORS), positions=True)
    assert all(part in text for part in (*KEYS, *PREDICTORS, "overall", "by draft position"))
    assert "…" not in text


def _shown(evaluation: Any, *, positions: bool = False) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        for table in tables(evaluation, positions=positions):
            console.print(table)
    return capture.get()


def _invoke(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(evaluate)
    return CliRunner().invoke(app, list(arguments))
