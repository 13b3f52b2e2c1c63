"""Refits when adaptive verification leaves late positions almost without labels."""

from __future__ import annotations

import numpy as np
import pytest

from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis, sigmoid
from accord.learner.local import LocalFit
from accord.learner.refit import FitStatus
from accord.learner.summary import RoundSummary

KNOTS = (0.0, 2.0, 4.0)


@pytest.mark.parametrize("k", [5, 7, 15])
def test_every_refit_converges_when_late_positions_are_hardly_ever_verified(k: int) -> None:
    """With one or two drafts verified of K, every refit converges within a handful of sweeps."""
    rng, basis, workloads, rows = np.random.default_rng(k), SplineBasis(KNOTS), 8, 32
    keys = tuple(f"w{i}:sampled" for i in range(workloads))
    fit = LocalFit("p", k, KNOTS)
    accumulator = Accumulator(k, basis, workloads, rows)
    slots = np.arange(rows) % workloads
    for seq in range(1, 21):
        for _ in range(100):
            f = rng.normal(0.5, 1.5, (rows, k))
            taken = np.cumprod(rng.random((rows, k)) < sigmoid(0.5 * f - 1.0), axis=1).sum(axis=1)
            admitted = rng.choice((0, 1, 1, 1, 2, k), size=rows, p=(0.2, 0.25, 0.2, 0.2, 0.149, 0.001))
            accumulator.observe(f, slots, np.arange(rows), np.minimum(taken, admitted), admitted)
        fit.fold(
            RoundSummary(
                "p",
                "e",
                "0" * 16,
                seq,
                seq,
                0,
                100,
                k,
                KNOTS,
                keys,
                accumulator.slopes.copy(),
                accumulator.intercepts.copy(),
                accumulator.drain(),
            )
        )
        assert fit.state.status is FitStatus.CONVERGED
        assert fit.state.refit().sweeps <= 8
        table = fit.table(seq)
        accumulator.apply([table.row(key) for key in keys])
