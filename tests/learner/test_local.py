from __future__ import annotations

import numpy as np
import pytest
from tests.learner.strategies import KEYS, PAIR, Engine, with_moments

from accord.learner.basis import SplineBasis, sigmoid
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.local import LocalFit
from accord.learner.workload import TemperatureClass

K, KNOTS = 3, (0.0, 2.0)
ROW = Coefficients(np.array([0.7, 0.0, 0.1]), np.array([0.5, 0.0, -0.5]))
OTHER = Coefficients(np.array([0.3, 0.0, 0.0]), np.array([-1.0, -1.0, -1.0]))


def served(*keys: str) -> CoefficientTable:
    """A fleet's table."""
    return CoefficientTable(PAIR, 9, OTHER, dict.fromkeys(keys, ROW), KNOTS, 1_000)


def test_nothing_learnt_is_the_cold_start() -> None:
    """Before any evidence the table is the cold one, under the version that was asked for."""
    table = LocalFit(PAIR, K, KNOTS).table(4)
    assert table.version == 4
    assert np.array_equal(table.prior.slopes, Coefficients.cold(K, SplineBasis(KNOTS)).slopes)


def test_every_summary_is_learnt_at_once() -> None:
    """A table after a summary holds its workloads and predicts its labels better than the cold start."""
    engine, fit = Engine(7, requests=40), LocalFit(PAIR, K, KNOTS)
    fit.fold(engine.round(60))
    table = fit.table(1)
    assert set(table.workloads) == set(engine.keys)
    f = np.full(K, 2.0)
    for key, truth in zip(engine.keys, engine.truth, strict=True):
        exact = truth.probability(engine.basis, f)
        cold = Coefficients.cold(K, engine.basis).probability(engine.basis, f)
        assert np.abs(table.row(key).probability(engine.basis, f) - exact).mean() < np.abs(cold - exact).mean()


def test_a_rebased_fit_serves_the_fleets_table_until_there_is_news() -> None:
    """Right after rebasing, the fleet's rows are in force, those of workloads never seen here included."""
    engine, fit = Engine(7, requests=40), LocalFit(PAIR, K, KNOTS)
    fit.fold(engine.round(20))
    fleet = served(engine.keys[0], "elsewhere:hot")
    fit.rebase(fleet)
    assert fit.table(9).to_json() == fleet.to_json()


def test_rows_without_evidence_here_stay_the_fleets() -> None:
    """Own refits replace the rows they know of; the fleet's other rows and its prior row stay."""
    engine, fit = Engine(7, requests=40), LocalFit(PAIR, K, KNOTS)
    fit.rebase(served("elsewhere:hot"))
    fit.fold(engine.round(40))
    table = fit.table(9)
    assert table.row("elsewhere:hot") is ROW
    assert table.row("never:hot") is OTHER
    assert table.row(engine.keys[0]) is not OTHER


def test_a_full_table_makes_room_for_own_rows() -> None:
    """Rows with own evidence come first when the fleet's would exceed the limit."""
    fleet = served(*(f"w{i}:{kind.value}" for i in range(16) for kind in list(TemperatureClass)[:4]))
    engine, fit = Engine(7, requests=40), LocalFit(PAIR, K, KNOTS)
    fit.rebase(fleet)
    fit.fold(engine.round(40))
    table = fit.table(9)
    assert len(table.workloads) == 64
    assert set(engine.keys) <= set(table.workloads)


def test_evidence_that_is_not_finite_teaches_nothing() -> None:
    """A round with NaN leaves what is known as it is, and the next good round is learnt."""
    engine, fit = Engine(7, requests=40), LocalFit(PAIR, K, KNOTS)
    fit.fold(engine.round(40))
    before = {name: array.copy() for name, array in fit.state.information.arrays().items()}
    bad = engine.round(5)
    fit.fold(with_moments(bad, c=np.full_like(bad.moments.c, np.nan)))
    for name, array in fit.state.information.arrays().items():
        assert np.array_equal(array, before[name])
    fit.fold(engine.round(40))
    assert (fit.state.arrays["c"].sum(axis=1) > before["c"].sum(axis=1)).all()
    assert fit.table(1).to_json()


def test_too_many_workloads_are_counted_and_left_out() -> None:
    """A summary beyond the room of a pair is refused, counted, and changes nothing."""
    fit = LocalFit(PAIR, K, KNOTS)
    fit.state.reserve([f"w{i}:{kind.value}" for i in range(16) for kind in list(TemperatureClass)[:4]])
    fit.fold(Engine(1, keys=KEYS[:1]).round(1))
    assert fit.refused == 1
    assert fit.state.refits == 0


@pytest.mark.parametrize("knots", [(), (0.0, 2.0, 4.0)])
@pytest.mark.parametrize(("centre", "truth"), [(8.0, 0.6), (12.0, 0.5), (5.0, 0.6)])
def test_an_overconfident_draft_is_learnt(knots: tuple[float, ...], centre: float, truth: float) -> None:
    """Where the cold start is certain and wrong, Newton steps overshoot; refits still find the truth in 30 rounds."""
    rng, basis, k, B = np.random.default_rng(0), SplineBasis(knots), 4, 32
    engine, fit = Engine(0, k, knots, ("code:greedy",), requests=B), LocalFit(PAIR, k, knots)
    a, slots = engine.accumulator, np.zeros(B, dtype=np.intp)
    for version in range(1, 31):
        for _ in range(40):
            f = rng.normal(centre, 2.0, (B, k))
            accepted = np.cumprod(rng.random(f.shape) < truth, axis=1).sum(axis=1)
            a.observe(f, slots, np.arange(B), accepted, np.full(B, k))
        fit.fold(engine.round(0))
        a.apply([fit.table(version).row("code:greedy")])
    p = sigmoid(basis.expand([centre - 2.0, centre, centre + 2.0]) @ a.slopes[0] + a.intercepts[0, 0])
    np.testing.assert_allclose(p, truth, atol=0.04)
