from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, bases, row, seeds, some

from accord.learner.basis import Array, SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.guard import MATERIAL_PROBABILITY, MIN_JUDGED_LABELS, judge, moved, proposal, shortened
from accord.learner.pair_state import PairState
from accord.learner.sketch import BINS

LINE = SplineBasis(())


def at(slope: float, *intercepts: float, variance: float = 0.0) -> Coefficients:
    """Coefficients of a straight line."""
    return Coefficients(np.array([slope]), np.array(intercepts), variance)


def exact_sketch(truth: Coefficients, labels: float = 5_000.0, basis: SplineBasis = LINE) -> Array:
    """A sketch [K, 64, 3] in which every share is exactly the truth's probability."""
    f = -4.0 + 0.25 * (np.arange(BINS) + 0.5)
    p = truth.probability(basis, np.repeat(f[:, None], truth.k, axis=1)).T
    each = labels / p.size
    return each * np.stack([np.ones_like(p), p, np.broadcast_to(f, p.shape)], axis=-1)


@given(seeds, bases, st.integers(1, 4))
@some
def test_judging_is_antisymmetric(seed: int, basis: SplineBasis, k: int) -> None:
    """Exchanging old and new changes the sign of the difference and nothing else; equal rows are always promoted."""
    rng = np.random.default_rng(seed)
    old, new = row(rng, k, basis), row(rng, k, basis)
    sketch = exact_sketch(row(rng, k, basis), basis=basis)
    there, back = judge(sketch, old, new, basis), judge(sketch, new, old, basis)
    assert there.difference == pytest.approx(-back.difference, abs=1e-12)
    assert there.noise == pytest.approx(back.noise, rel=1e-6, abs=1e-12)
    assert there.promoted or back.promoted
    same = judge(sketch, old, old, basis)
    assert same.promoted
    assert same.difference == same.noise == 0.0


@given(st.sampled_from([300.0, 3_000.0, 300_000.0]), st.sampled_from([2.0, 100.0]))
@some
def test_noise_shrinks_with_the_root_of_the_labels(labels: float, factor: float) -> None:
    """With more labels of the same kind the difference stays and its standard error falls as 1 / sqrt(labels)."""
    old, new = at(0.5, -0.2), at(0.55, -0.25)
    few, many = (judge(exact_sketch(old, n), old, new, LINE) for n in (labels, factor * labels))
    assert many.difference == pytest.approx(few.difference, rel=1e-9)
    assert many.noise == pytest.approx(few.noise / np.sqrt(factor), rel=1e-9)


def test_noise_is_the_standard_error_over_repeated_samples() -> None:
    """The spread of the difference over many samples of labels is the noise that one sample reports."""
    rng, old, new = np.random.default_rng(0), at(0.5, -0.2), at(0.8, -0.6)
    n = 40
    f = -4.0 + 0.25 * (np.arange(BINS) + 0.5)
    p = old.probability(LINE, f[:, None])[:, 0]
    verdicts = []
    for _ in range(400):
        y = rng.binomial(n, p)
        verdicts.append(judge(np.stack([np.full(BINS, n), y, n * f], axis=-1)[None].astype(float), old, new, LINE))
    spread = np.std([v.difference for v in verdicts])
    # within a cell all labels share their feature, which the reported noise counts as chance: it is a little wide
    assert spread < np.mean([v.noise for v in verdicts]) < 2.0 * spread


def test_a_clear_loss_is_held_back_and_a_clear_gain_is_not() -> None:
    """Rows that describe recent labels worse are refused, better ones promoted, whatever the direction."""
    truth = at(0.5, 0.1, -0.3)
    sketch = exact_sketch(truth)
    for wrong in (at(0.5, 1.1, 0.7), at(0.5, -0.9, -1.3), at(0.0, 0.1, -0.3), at(1.2, 0.1, -0.3)):
        assert not judge(sketch, truth, wrong, LINE).promoted
        assert judge(sketch, wrong, truth, LINE).promoted


def test_too_few_labels_cannot_tell() -> None:
    """Below the least number of labels every fit is trusted."""
    truth, wrong = at(0.5, 0.0), at(0.0, -4.0)
    assert judge(exact_sketch(truth, MIN_JUDGED_LABELS - 1.0), truth, wrong, LINE).promoted
    assert not judge(exact_sketch(truth, MIN_JUDGED_LABELS + 1.0), truth, wrong, LINE).promoted


def test_identical_labels_do_not_hide_a_loss() -> None:
    """Where all labels are alike the noise is zero, and any loss is a clear one."""
    cells = np.zeros((1, BINS, 3))
    cells[0, 20] = [1_000.0, 1_000.0, 1_100.0]
    verdict = judge(cells, at(0.5, 0.0), at(0.5, -0.5), LINE)
    assert verdict.noise == pytest.approx(0.0, abs=1e-9)
    assert not verdict.promoted


@given(seeds, st.floats(1.5, 40.0))
@some
def test_a_step_that_overshoots_is_shortened_to_one_that_helps(seed: int, times: float) -> None:
    """A step in the right direction but many times too long is halved until it helps; the wrong direction never is."""
    rng = np.random.default_rng(seed)
    old, truth = at(0.5, 0.0, 0.0), at(0.5 + 0.4 * rng.random(), *rng.uniform(0.5, 1.0, 2))
    far = np.clip(old.intercepts + 4.0 * times * (truth.intercepts - old.intercepts), -40.0, 40.0)
    new = Coefficients(old.slopes + min(4.0 * times * float(truth.slopes[0] - 0.5), 30.0), far)
    sketch = exact_sketch(truth, 20_000.0)
    if not judge(sketch, old, new, LINE).promoted:
        found = shortened(sketch, old, new, LINE)
        assert found is not None
        assert judge(sketch, old, found, LINE).difference < 0.0
    backwards = at(max(0.5 - 0.2 * times, 0.0), *(-times * truth.intercepts).clip(-40.0))
    assert shortened(sketch, old, backwards, LINE) is None


def test_change_is_measured_where_there_is_traffic() -> None:
    """A change far from any label is not a change; without labels it is looked for everywhere."""
    cells = np.zeros((1, BINS, 3))
    cells[0, 20] = [10.0, 5.0, 11.0]
    old = Coefficients(np.array([0.5, 0.0]), np.zeros(1))
    new = Coefficients(np.array([0.5, 0.4]), np.zeros(1))
    basis = SplineBasis((4.0,))
    assert moved(cells, old, new, basis) == 0.0
    assert moved(np.zeros((1, BINS, 3)), old, new, basis) > MATERIAL_PROBABILITY


def test_another_request_effect_is_always_a_change() -> None:
    """A different variance of the request effect counts as material even when the line stays."""
    assert moved(exact_sketch(at(0.5, 0.0)), at(0.5, 0.0), at(0.5, 0.0, variance=0.1), LINE) == float("inf")


def test_a_proposal_keeps_what_hurts_and_lists_what_moves() -> None:
    """The fitted row of a workload that got worse is held, others move, and a new one is always listed."""
    engine, state = Engine(4, keys=KEYS[:3], requests=60), PairState(PAIR, 3, (0.0, 2.0))
    state.fold(1, [engine.round(100)])
    fitted = [state.row(i) for i in range(3)]
    rows = {KEYS[0]: fitted[0], KEYS[1]: Coefficients.cold(3, engine.basis)}
    served = CoefficientTable(PAIR, 1, Coefficients.cold(3, engine.basis), rows, (0.0, 2.0))
    # evidence that contradicts the sketch
    state.arrays["intercepts"][1] -= 5.0
    found = proposal(state, served)
    assert found.material
    assert (
        found.rows[KEYS[1]] is rows[KEYS[1]]
        or judge(state.arrays["acceptance"][1], rows[KEYS[1]], found.rows[KEYS[1]], engine.basis).promoted
    )
    assert KEYS[0] not in found.moved
    assert found.moved[KEYS[2]] is None


def test_nothing_new_is_not_material() -> None:
    """Served rows that are the fitted ones give a proposal without any change."""
    engine, state = Engine(4, requests=60), PairState(PAIR, 3, (0.0, 2.0))
    state.fold(1, [engine.round(50)])
    found = proposal(state, state.table(1))
    assert not found.material
    assert not found.held
