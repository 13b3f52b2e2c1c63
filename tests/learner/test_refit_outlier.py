"""Honest evidence of a workload that is nothing like the others."""

from __future__ import annotations

import numpy as np
import pytest

from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis, sigmoid
from accord.learner.local import LocalFit
from accord.learner.refit import MAX_VARIANCE_RATIO
from accord.learner.summary import RoundSummary

KNOTS = (0.0, 2.0, 4.0)
KEYS = ("chat:warm", "odd:constrained")
K, ROWS = 3, 40


def learnt(confidence: float, accepted: float, rounds: int = 40) -> LocalFit:
    """An ordinary workload beside one with features around `confidence` of which this share is accepted."""
    rng, basis = np.random.default_rng(7), SplineBasis(KNOTS)
    fit, accumulator = LocalFit("p", K, KNOTS), Accumulator(K, basis, 2, ROWS)
    slots = np.arange(ROWS) % 2
    for seq in range(1, rounds + 1):
        for _ in range(20):
            f = np.where(slots[:, None] == 0, rng.normal(1.5, 1.5, (ROWS, K)), rng.normal(confidence, 1.0, (ROWS, K)))
            p = np.where(slots[:, None] == 0, sigmoid(0.8 * f + 0.3), accepted)
            taken = np.cumprod(rng.random(p.shape) < p, axis=1).sum(axis=1)
            accumulator.observe(f, slots, np.arange(ROWS), taken, np.full(ROWS, K))
        fit.fold(
            RoundSummary(
                "p", "e", "0" * 16, seq, seq, 0, 20, K, KNOTS, KEYS, accumulator.slopes.copy(),
                accumulator.intercepts.copy(), accumulator.drain(), accumulator.drain_sketch(),
            )
        )  # fmt: skip
        assert fit.state.status.usable
        table = fit.table(seq)
        accumulator.apply([table.row(key) for key in KEYS])
    return fit


@pytest.mark.parametrize(("confidence", "accepted"), [(8.0, 0.0), (12.0, 0.9), (16.0, 0.3), (20.0, 0.9), (30.0, 0.7)])
def test_an_extreme_workload_is_learnt_and_spoils_nothing(confidence: float, accepted: float) -> None:
    """Every refit is usable, both workloads are calibrated, variances are bounded, the prior row stays sensible."""
    fit = learnt(confidence, accepted)
    table, basis, h = fit.table(1), SplineBasis(KNOTS), fit.state.hierarchy
    odd = table.row(KEYS[1]).probability(basis, np.full(K, confidence))[0]
    assert odd == pytest.approx(accepted, abs=0.05)
    usual = table.row(KEYS[0]).probability(basis, np.full(K, 1.5))[0]
    assert usual == pytest.approx(float(sigmoid(0.8 * 1.5 + 0.3)), abs=0.05)
    assert h.level_variance <= MAX_VARIANCE_RATIO * 0.4**2 + 1e-9
    assert abs(table.prior.probability(basis, np.full(K, 1.5))[0] - usual) < 0.35
