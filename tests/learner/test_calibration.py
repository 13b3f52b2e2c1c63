from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from tests.learner.strategies import KEYS, bases, few, row, seeds, some

from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.calibration import (
    ECE_BINS,
    Cells,
    accepted_per_step,
    auc,
    metrics,
    positions,
    reliability,
    report,
    survival_reliability,
)
from accord.learner.coefficients import Coefficients
from accord.learner.evaluate.metrics import Metrics
from accord.learner.evaluate.synthetic import Source, synthetic
from accord.learner.sketch import BINS, SURVIVAL_BINS, Sketch, feature_bin


def labels_of(seed: int, k: int, count: int) -> tuple[Array, np.ndarray, Array]:
    """Features in the middle of random cells, positions and labels of which both kinds exist."""
    rng = np.random.default_rng(seed)
    f = -4.0 + 0.25 * (rng.integers(0, BINS, count) + 0.5)
    y = (rng.random(count) < sigmoid(0.4 * f - 0.3)).astype(float)
    y[:2] = 0.0, 1.0
    return f, rng.integers(0, k, count), y


def sketch_of(f: Array, position: np.ndarray, y: Array, k: int) -> Array:
    """The acceptance sketch [K, 64, 3] of raw labels."""
    cells = np.zeros((k, BINS, 3))
    for channel, values in enumerate((np.ones(len(f)), y, f)):
        np.add.at(cells[..., channel], (position, feature_bin(f)), values)
    return cells


@given(seeds, bases, st.integers(1, 4), st.integers(2, 400))
@some
def test_metrics_are_scikit_learns_when_a_cell_has_one_feature(
    seed: int, basis: SplineBasis, k: int, count: int
) -> None:
    """Log-loss, AUC and Brier score are those of the labels themselves, ties included, and so is the ECE."""
    f, position, y = labels_of(seed, k, count)
    judged = row(np.random.default_rng(seed), k, basis)
    p = sigmoid(basis.expand(f) @ judged.slopes + judged.intercepts[position])
    # predictions of the same cell are equal up to rounding in its mean feature: tie them in the oracle too
    found = metrics(Cells.of(sketch_of(f, position, y, k), judged, basis))
    assert found["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-9)
    assert found["brier"] == pytest.approx(brier_score_loss(y, p), rel=1e-9)
    place = np.minimum((p * ECE_BINS).astype(int), ECE_BINS - 1)
    if np.all(np.abs(p * ECE_BINS - np.rint(p * ECE_BINS)) > 1e-9):
        gaps = [abs((p - y)[place == b].sum()) for b in range(ECE_BINS)]
        assert found["ece"] == pytest.approx(sum(gaps) / count, abs=1e-12)


@given(seeds, st.integers(2, 200))
@some
def test_auc_is_scikit_learns_with_ties(seed: int, count: int) -> None:
    """The weighted rank statistic is that of every label written out."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.random(count), 1)
    up, down = rng.integers(0, 4, count).astype(float), rng.integers(0, 4, count).astype(float)
    up[0] = down[-1] = 1.0
    y = np.concatenate([np.ones(int(up.sum())), np.zeros(int(down.sum()))])
    scores = np.concatenate([np.repeat(score, up.astype(int)), np.repeat(score, down.astype(int))])
    assert auc(score, up, down) == pytest.approx(roc_auc_score(y, scores), rel=1e-12)


def test_auc_needs_both_kinds_of_labels() -> None:
    """With only accepted or only rejected labels there is nothing to rank."""
    assert auc(np.array([0.1]), np.array([3.0]), np.array([0.0])) is None
    assert auc(np.zeros(0), np.zeros(0), np.zeros(0)) is None


@given(st.integers(0, 10_000))
@few
def test_sketch_metrics_are_close_to_the_exact_ones(seed: int) -> None:
    """On traffic like a recorded trace, metrics from the sketch are within 1e-3 of those of every label.

    A row that bends steeply within a cell ranks its labels otherwise than the cell's mean does, so the AUC and the bins
    of the calibration error of one drawn at random are held to 1e-2 only (400 seeds: 4e-3 and 6e-3).
    """
    rng, basis, k = np.random.default_rng(seed), SplineBasis((0.0, 2.0, 4.0)), 5
    truth = Coefficients(np.array([0.3, 0.2, 0.1, -0.1]), np.linspace(-0.1, -0.6, k), 0.1)
    trace = synthetic([Source(KEYS[0], truth)], k=k, basis=basis, steps=300, seed=seed).trace
    line, position = np.nonzero(trace.labelled)
    f, y = trace.features[line, position].astype(float), trace.y[line, position].astype(float)
    drawn = row(rng, k, basis)
    for judged in (truth, drawn, Coefficients.cold(k, basis)):
        p = sigmoid(basis.expand(f) @ judged.slopes + judged.intercepts[position])
        exact = Metrics.of(p, y > 0.5).to_dict()
        found = metrics(Cells.of(sketch_of(f, position, y, k), judged, basis))
        for name in ("log_loss", "brier", "auc"):
            close = 1e-2 if judged is drawn and name == "auc" else 1e-3
            assert found[name] == pytest.approx(exact[name], abs=close), name
        # a cell falls into one of the 20 bins whole, so the bin edges blur: the gap stays below one bin's noise
        assert found["ece"] == pytest.approx(exact["ece"], abs=1e-2 if judged is drawn else 5e-3)


def test_empty_sketches_have_no_metrics() -> None:
    """Without a label every metric is None, every diagram empty, and the report can be written as JSON."""
    basis = SplineBasis(())
    empty, cold = np.zeros((2, BINS, 3)), Coefficients.cold(2, basis)
    assert set(metrics(Cells.of(empty, cold, basis)).values()) == {None}
    found = report(empty, np.zeros((2, SURVIVAL_BINS, 3)), cold, basis)
    assert found["reliability"] == found["survival"] == []
    assert [line["accepted"] for line in found["positions"]] == [None, None]
    json.dumps(found, allow_nan=False)


@given(seeds, bases, st.integers(1, 4))
@some
def test_diagrams_account_for_every_label(seed: int, basis: SplineBasis, k: int) -> None:
    """The bins and the positions hold all labels, their accepted shares add up, and predictions lie in their bin."""
    f, position, y = labels_of(seed, k, 300)
    judged = row(np.random.default_rng(seed), k, basis)
    sketch = sketch_of(f, position, y, k)
    cells = Cells.of(sketch, judged, basis)
    bins, by_position = reliability(cells), positions(sketch, cells)
    assert sum(b["labels"] for b in bins) == 300.0
    assert sum(b["labels"] * b["accepted"] for b in bins) == pytest.approx(y.sum())
    assert all(b["low"] - 1e-9 <= b["predicted"] <= b["high"] + 1e-9 for b in bins)
    for j, line in enumerate(by_position):
        mine = position == j
        assert line["labels"] == mine.sum()
        if mine.any():
            assert line["accepted"] == pytest.approx(y[mine].mean())


def test_survival_diagram_sums_positions() -> None:
    """The survival diagram pools the positions: count, mean prediction and realised share of each bin."""
    survival = np.zeros((2, SURVIVAL_BINS, 3))
    survival[0, 3], survival[1, 3] = [10.0, 1.7, 2.0], [30.0, 5.1, 4.0]
    (line,) = survival_reliability(survival)
    assert line == {
        "low": 0.15,
        "high": 0.2,
        "positions": 40.0,
        "predicted": pytest.approx(0.17),
        "realised": pytest.approx(0.15),
    }


def test_accepted_drafts_of_a_step_are_predicted_and_counted() -> None:
    """Expected and realised drafts of a step are the sums over its verified positions; without any there are none."""
    rng, k, rows = np.random.default_rng(1), 3, 200
    sketch, slots = Sketch.zeros(1, k), np.zeros(rows, dtype=np.intp)
    survival = np.cumprod(rng.random((rows, k)), axis=1)
    admitted, drawn = rng.integers(0, k + 1, rows), rng.integers(0, k + 1, rows)
    accepted = np.minimum(admitted, drawn)
    verified = np.arange(k) < admitted[:, None]
    labelled = verified & (np.arange(k) <= accepted[:, None])
    sketch.observe(slots, np.zeros((rows, k)), survival, accepted, labelled, verified)
    found, blocks = accepted_per_step(sketch.survival[0]), np.count_nonzero(admitted)
    assert found["blocks"] == blocks
    assert found["expected"] == pytest.approx(survival[verified].sum() / blocks)
    assert found["realised"] == pytest.approx(accepted.sum() / blocks)
    nothing = accepted_per_step(np.zeros((k, SURVIVAL_BINS, 3)))
    assert nothing == {"blocks": 0.0, "expected": None, "realised": None}


def test_log_loss_is_least_at_the_truth() -> None:
    """With labels at exactly their probabilities, any other coefficients have a larger log-loss and ECE."""
    basis, truth = SplineBasis(()), Coefficients(np.array([0.5]), np.array([-0.2]))
    f = -4.0 + 0.25 * (np.arange(BINS) + 0.5)
    p = truth.probability(basis, f[:, None])[:, 0]
    cells = np.stack([np.full(BINS, 100.0), 100.0 * p, 100.0 * f], axis=-1)[None]
    best = metrics(Cells.of(cells, truth, basis))
    assert best["ece"] == pytest.approx(0.0, abs=1e-12)
    for other in (Coefficients(np.array([0.6]), np.array([-0.2])), Coefficients(np.array([0.5]), np.array([0.0]))):
        worse = metrics(Cells.of(cells, other, basis))
        assert worse["log_loss"] > best["log_loss"]
        assert worse["ece"] > 0.01


def test_float32_sketches_with_rounded_counts_are_judged() -> None:
    """Accepted sums that rounding lifted above the labels do not leave the range of a share."""
    basis = SplineBasis(())
    cells = np.zeros((1, BINS, 3))
    cells[0, 20] = [3.0, 3.0000002, 3.6]
    found = report(cells, np.zeros((1, SURVIVAL_BINS, 3)), Coefficients.cold(1, basis), basis)
    assert found["accepted"] == 3.0
    assert found["log_loss"] > 0.0
