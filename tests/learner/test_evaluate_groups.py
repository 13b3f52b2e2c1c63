"""`accord evaluate` by request class, expected against realised drafts, and the entropy as a second feature."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from accord.learner.basis import sigmoid
from accord.learner.coefficients import Coefficients
from accord.learner.errors import InvalidValue
from accord.learner.evaluate.command import evaluate
from accord.learner.evaluate.entropy import CENTRE, ENTROPY, Entropy
from accord.learner.evaluate.metrics import Metrics, accepted_per_step
from accord.learner.evaluate.predictors import Accord, Batch
from accord.learner.evaluate.prequential import evaluate_trace, replay
from accord.learner.evaluate.report import tables
from accord.learner.evaluate.synthetic import Source, Synthetic, synthetic
from accord.learner.evaluate.trace import Trace

KEYS = ("chat:sampled", "code:sampled", "code:greedy")


def mixture(steps: int = 300) -> Synthetic:
    """Two workloads of one class, and one of another."""
    levels = zip(KEYS, (-0.5, 0.0, 0.5), strict=True)
    sources = [Source(key, Coefficients(np.array([0.5]), np.full(4, level))) for key, level in levels]
    return synthetic(sources, k=4, steps=steps, concurrency=16)


def with_entropy(slope: float, steps: int = 900) -> Trace:
    """A trace whose acceptance depends on an entropy that logit(q_max) does not tell."""
    made = mixture(steps)
    rng, trace = np.random.default_rng(1), made.trace
    entropy = rng.gamma(3.0, 1.0, trace.features.shape).astype(np.float32)
    accept = rng.logistic(size=entropy.shape) < made.log_odds + slope * (CENTRE - entropy)
    return replace(trace, entropy=entropy, accepted=np.cumprod(accept, axis=1).sum(axis=1).astype(np.int64))


def test_a_class_holds_the_labels_of_all_its_workloads() -> None:
    """Metrics of a class are those of its workloads' labels taken together."""
    trace = mixture().trace
    batch = Batch(trace)
    found = evaluate_trace(trace, {"batch": batch})
    assert list(found.classes) == ["sampled", "greedy"]
    mask = trace.labelled & np.isin(trace.workload, (0, 1))[:, None]
    p = replay(trace, {"batch": batch})["batch"]
    assert found.classes["sampled"]["batch"] == Metrics.of(p[mask], trace.y[mask])
    assert found.classes["greedy"] == found.workloads["code:greedy"]


def test_the_truth_expects_the_drafts_that_are_accepted() -> None:
    """Expected drafts of a request and step are the summed survival: under the truth, what is realised."""
    made = mixture(1500)
    rows = made.trace.rows
    expected, realised = accepted_per_step(sigmoid(made.log_odds)), made.trace.accepted.mean()
    assert expected == pytest.approx(realised, abs=4.0 * made.trace.accepted.std() / np.sqrt(rows))
    assert accepted_per_step(np.array([[0.5, 0.5], [1.0, 0.0]])) == pytest.approx(0.875)


def test_tables_by_class_name_the_classes() -> None:
    """With `by` class the rows are classes, and the caption holds expected and realised drafts."""
    trace = mixture(60).trace
    found = evaluate_trace(trace, {"batch": Batch(trace)})
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        for table in tables(found, by="class"):
            console.print(table)
    text = capture.get()
    assert "greedy" in text
    assert "chat:sampled" not in text
    assert f"accepted drafts per request and step: {found.realised:.4f}" in text


def test_the_entropy_is_learnt_where_it_tells_something() -> None:
    """With a true slope of 0.4 per nat, every workload's slope is found and the log-loss falls."""
    trace = with_entropy(0.4)
    entropy = Entropy(trace)
    found = evaluate_trace(trace, {"accord": Accord(trace), ENTROPY: entropy})
    assert found.overall[ENTROPY].log_loss < found.overall["accord"].log_loss - 0.01
    for slopes, _ in entropy.coefficients().values():
        assert slopes.shape == (5,)
        assert slopes[-1] == pytest.approx(0.4, abs=0.08)


def test_an_entropy_that_tells_nothing_does_not_hurt() -> None:
    """With a true slope of 0 the log-loss stays that of accord."""
    trace = with_entropy(0.0)
    found = evaluate_trace(trace, {"accord": Accord(trace), ENTROPY: Entropy(trace)}).overall
    assert found[ENTROPY].log_loss == pytest.approx(found["accord"].log_loss, abs=5e-4)


def test_without_its_entropy_the_predictor_is_accord() -> None:
    """An entropy that is the same everywhere and adds nothing leaves accord's own predictions, but for the guard."""
    trace = mixture(100).trace
    flat = replace(trace, entropy=np.full(trace.features.shape, CENTRE, dtype=np.float32))
    found = replay(flat, {"accord": Accord(flat), ENTROPY: Entropy(flat)})
    np.testing.assert_allclose(found[ENTROPY], found["accord"], atol=1e-9)
    with pytest.raises(InvalidValue, match="entropy"):
        Entropy(trace)


def test_the_entropy_is_an_option_of_the_command(tmp_path: Path) -> None:
    """`--features qmax,entropy` adds the predictor beside the others, with one more slope."""
    with_entropy(0.4, 60).save(tmp_path / "trace.npz")
    app = typer.Typer()
    app.command()(evaluate)
    arguments = ["--trace", str(tmp_path / "trace.npz"), "--json", "--features", "qmax,entropy"]
    document = json.loads(CliRunner().invoke(app, [*arguments, "--predictors", "accord,vllm"]).stdout)
    assert list(document["overall"]) == ["accord", "vllm", ENTROPY]
    assert document["features"] == ["qmax", "entropy"]
    assert len(document["coefficients"][ENTROPY]["code:greedy"]["slopes"]) == 5
