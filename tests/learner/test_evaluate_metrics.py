"""Metrics, against scikit-learn and against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from accord.learner.errors import InvalidValue
from accord.learner.evaluate.metrics import Metrics, by_position, expected_calibration_error, workload_ece

ROWS = st.lists(
    st.tuples(
        st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.05, 0.5, 1.0])),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@given(ROWS)
def test_metrics_agree_with_scikit_learn(rows: list[tuple[float, bool]]) -> None:
    """Log-loss, AUC (ties included) and Brier equal scikit-learn's on any probabilities and labels."""
    p, y = (np.array(column) for column in zip(*rows, strict=True))
    found = Metrics.of(p, y)
    assert found.labels == len(rows)
    assert found.log_loss == pytest.approx(log_loss(y, np.stack([1.0 - p, p], axis=1), labels=[False, True]), abs=1e-9)
    assert found.brier == pytest.approx(brier_score_loss(y, p), abs=1e-12)
    if y.all() or not y.any():
        assert math.isnan(found.auc)
        assert found.to_dict()["auc"] is None
    else:
        assert found.auc == pytest.approx(roc_auc_score(y, p), abs=1e-12)


@given(ROWS)
def test_ece_is_its_definition(rows: list[tuple[float, bool]]) -> None:
    """ECE equals the loop over twenty equal-width bins, and lies between 0 and 1."""
    p, y = (np.array(column) for column in zip(*rows, strict=True))
    expected = 0.0
    for b in range(20):
        inside = np.minimum(np.floor(p * 20), 19) == b
        if inside.any():
            expected += inside.mean() * abs(p[inside].mean() - y[inside].mean())
    found = expected_calibration_error(p, y)
    assert found == pytest.approx(expected, abs=1e-12)
    assert 0.0 <= found <= 1.0


def test_workload_ece_weighs_by_labels() -> None:
    """A workload with three times the labels counts three times."""
    good, bad = Metrics.of([0.5, 0.5], [True, False]), Metrics.of([0.5] * 6, [True] * 6)
    assert workload_ece([good, bad]) == pytest.approx(0.75 * bad.ece)
    assert math.isnan(workload_ece([]))


def test_positions_are_judged_apart() -> None:
    """Each draft position has metrics of its own labels only."""
    p, y = np.array([[0.9, 0.2], [0.8, 0.4]]), np.array([[True, False], [True, True]])
    first, second = by_position(p, y, np.array([[True, False], [True, True]]))
    assert (first.labels, second.labels) == (2, 1)
    assert second.brier == pytest.approx(0.36)


def test_no_labels_give_no_numbers() -> None:
    """Metrics of nothing are NaN, which JSON shows as null."""
    assert set(Metrics.of([], []).to_dict().values()) == {None}


@pytest.mark.parametrize(("p", "y"), [([0.5], [True, False]), ([1.5], [True]), ([float("nan")], [True])])
def test_what_is_no_probability_is_refused(p: list[float], y: list[bool]) -> None:
    """Shapes that differ and values outside [0, 1] are InvalidValue."""
    with pytest.raises(InvalidValue):
        Metrics.of(p, y)
