from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, dense_hessian, few, seeds, some, with_moments

from accord.learner.basis import SplineBasis
from accord.learner.coefficients import MAX_WORKLOADS, Coefficients, CoefficientTable
from accord.learner.errors import Reason, Refusal
from accord.learner.pair_state import MEMORY_LABELS, PER_WORKLOAD, SKETCH_MEMORY_LABELS, PairState
from accord.learner.refit import FitStatus
from accord.learner.request_effect import VARIANCE_GRID
from accord.learner.summary import RoundSummary
from accord.learner.workload import TemperatureClass

K, KNOTS = 3, (0.0, 2.0)


def fresh() -> PairState:
    """A pair that nobody has seen."""
    return PairState(PAIR, K, KNOTS)


def information(state: PairState, key: str) -> np.ndarray:
    """Everything additive that is known of a workload, flat."""
    index = state.keys.index(key)
    return np.concatenate([state.arrays[n][index].ravel() for n in ("A", "B", "c", "e0", "e1", "n", "y", "loss")])


def counted(summary: RoundSummary) -> np.ndarray:
    """The same of a summary, [W, size]."""
    m = summary.moments
    arrays = (m.A, m.B, m.c, *summary.information(), m.n, m.y, m.loss)
    return np.concatenate([a.reshape(len(summary.workloads), -1) for a in arrays], axis=1)


@given(seeds, st.integers(1, 4))
@some
def test_evidence_fades_by_exactly_the_new_labels(seed: int, ticks: int) -> None:
    """What was known counts exp(-n / memory) after n new labels of its own workload; others' labels do not fade it."""
    engine, state = Engine(seed), fresh()
    expected, sketched = np.zeros((2, counted(engine.round(1)).shape[1])), np.zeros((2, K, 64, 3))
    for tick in range(ticks):
        engine.apply_random()
        summary = engine.round(9)
        new = summary.moments.n.sum(axis=1)
        expected = expected * np.exp(-new / MEMORY_LABELS)[:, None] + counted(summary)
        assert summary.sketch is not None
        sketched = sketched * np.exp(-new / SKETCH_MEMORY_LABELS)[:, None, None, None] + summary.sketch.acceptance
        state.fold(tick, [summary])
    for index, key in enumerate(engine.keys):
        np.testing.assert_allclose(information(state, key), expected[index], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(state.arrays["acceptance"][index], sketched[index], rtol=1e-12, atol=1e-12)


@given(seeds)
@some
def test_summaries_of_one_tick_fade_once_and_then_add_up(seed: int) -> None:
    """A tick fades what was known by all its labels together, and what it brings is added whole."""
    engines = [Engine(seed, name="a/0"), Engine(seed + 1, name="b/0", keys=KEYS[1:3])]
    first, state = engines[0].round(9), fresh()
    state.fold(1, [first])
    parts = [engine.round(9) for engine in engines]
    state.fold(2, parts)
    for key in KEYS[:3]:
        rows = [counted(p)[p.workloads.index(key)] for p in parts if key in p.workloads]
        new = sum(p.moments.n[p.workloads.index(key)].sum() for p in parts if key in p.workloads)
        before = counted(first)[first.workloads.index(key)] if key in first.workloads else 0.0
        expected = before * np.exp(-new / MEMORY_LABELS) + sum(rows)
        np.testing.assert_allclose(information(state, key), expected, rtol=1e-12, atol=1e-12)


@given(seeds)
@few
def test_order_within_a_tick_changes_only_rounding(seed: int) -> None:
    """Summaries of the same tick in another order give the same fit up to rounding."""
    parts = [Engine(seed + i, name=f"e/{i}").round(8) for i in range(3)]
    one, other = fresh(), fresh()
    one.fold(1, parts)
    other.fold(1, parts[::-1])
    np.testing.assert_allclose(one.arrays["intercepts"], other.arrays["intercepts"], atol=1e-9)
    np.testing.assert_allclose(one.arrays["slopes"], other.arrays["slopes"], atol=1e-9)


@given(seeds)
@few
def test_the_same_ticks_give_the_same_state_to_the_bit(seed: int) -> None:
    """Folding is a function: repeated, every array is equal to the bit."""
    ticks = [[Engine(seed + i, name=f"e/{i}").round(5) for i in range(2)] for _ in range(2)]
    states = [fresh(), fresh()]
    for state in states:
        for tick, parts in enumerate(ticks):
            state.fold(tick, parts)
    for name in PER_WORKLOAD:
        assert states[0].arrays[name].tobytes() == states[1].arrays[name].tobytes()


def test_a_workload_appears_half_way() -> None:
    """A new workload gets a row behind the others, with its own labels and event time, and they keep theirs."""
    state, early, late = fresh(), Engine(1, keys=KEYS[:1]), Engine(2, keys=KEYS[1:2], name="late/0")
    state.fold(250, [early.round(20)])
    before = information(state, KEYS[0])
    state.fold(500, [late.round(20)])
    assert state.keys == list(KEYS[:2])
    assert state.event_ms.tolist() == [250, 500]
    assert np.array_equal(information(state, KEYS[0]), before)
    assert np.all(state.arrays["memory"] == MEMORY_LABELS)
    assert np.all(state.labels > 0)


def test_labels_are_never_forgotten() -> None:
    """The count of labels is whole and does not fade, while the faded counts do."""
    state, engine = fresh(), Engine(1, requests=40)
    sent = 0
    for tick in range(6):
        summary = engine.round(60)
        sent += summary.labels
        state.fold(tick, [summary])
    assert state.labels.sum() == sent
    assert state.arrays["n"].sum() < sent


def test_a_workload_without_labels_keeps_its_event_time() -> None:
    """A row that brings no label is no event."""
    state, engine = fresh(), Engine(1)
    state.fold(250, [engine.round(20)])
    silent = engine.round(0)
    state.fold(500, [silent])
    assert state.event_ms.tolist() == [250, 250]


def test_a_pair_has_room_for_so_many_workloads_and_no_more() -> None:
    """What a summary says of new workloads beyond the limit is left out; of known ones everything is taken."""
    keys = [f"w{i}:{kind.value}" for i in range(16) for kind in list(TemperatureClass)[:4]]
    state = fresh()
    state.reserve(keys[:-1])
    mixed = Engine(1, keys=("one-more:hot", keys[0], "two-more:hot")).round(30)
    fitting = state.fitting(mixed)
    assert fitting.workloads == ("one-more:hot", keys[0])
    assert np.array_equal(fitting.moments.n, mixed.moments.n[:2])
    assert np.array_equal(fitting.moments.A, mixed.moments.A[:2])
    state.reserve(fitting.workloads)
    assert len(state.keys) == MAX_WORKLOADS
    known = Engine(1, keys=tuple(keys[:2])).round(1)
    assert state.fitting(known) is known
    with pytest.raises(Refusal) as caught:
        state.fitting(Engine(1, keys=("three-more:hot", "two-more:hot")).round(1))
    assert caught.value.reason is Reason.WORKLOADS
    assert len(state.keys) == MAX_WORKLOADS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["A", "B", "c", "g0", "g1", "y", "loss"])
def test_evidence_that_is_not_finite_is_set_aside_alone(name: str, value: float) -> None:
    """NaN in one workload of a summary takes nothing from what is known, and the summary's other workload is learnt."""
    state, engine = fresh(), Engine(1)
    state.fold(1, [engine.round(30)])
    before = {name: array[0].copy() for name, array in state.information.arrays().items()}
    known = state.arrays["c"][1].sum()
    bad = engine.round(5)
    array = getattr(bad.moments, name).copy()
    array[0].flat[-1] = value
    folded = state.fold(2, [with_moments(bad, **{name: array})])
    assert [(item.engine, item.workload) for item in folded.aside] == [(bad.engine, bad.workloads[0])]
    assert folded.aside[0].labels == bad.moments.n[0].sum()
    assert state.status is FitStatus.CONVERGED
    for told, array in state.information.arrays().items():
        assert np.array_equal(array[0], before[told])
    assert state.arrays["c"][1].sum() > known
    kept = [*state.arrays.values(), *(getattr(state.influence, told) for told in state.influence.ARRAYS)]
    assert all(np.isfinite(array).all() for array in kept)


def test_a_fit_that_is_not_finite_leaves_the_last_one_in_force() -> None:
    """After evidence that cannot be fitted coefficients, errors and pair parameters stay, and the status says so."""
    state, engine = fresh(), Engine(1)
    state.fold(1, [engine.round(30)])
    before = {name: state.arrays[name].copy() for name in ("slopes", "intercepts", "slope_errors", "intercept_errors")}
    hierarchy = state.hierarchy
    state.arrays["e1"][0, 0] = np.nan
    state.refit()
    assert state.status is FitStatus.NOT_FINITE
    assert state.hierarchy is hierarchy
    for name, array in before.items():
        assert np.array_equal(state.arrays[name], array)


def test_a_workload_without_a_usable_fit_stands_at_the_pair() -> None:
    """A row that was never fitted is the pair's own, not zeros."""
    state = fresh()
    state.reserve(KEYS[:1])
    assert np.array_equal(state.row(0).slopes, state.hierarchy.slopes)
    assert np.array_equal(state.row(0).intercepts, state.hierarchy.intercepts)


def test_rebase_moves_the_optimum_and_keeps_the_firmness() -> None:
    """After rebasing, well-known workloads refit to the table's rows with the same errors as before."""
    state, engine = fresh(), Engine(5, requests=60)
    for tick in range(4):
        state.fold(tick, [engine.round(100)])
    basis, curvature = SplineBasis(KNOTS), state.arrays["A"].copy()
    rows = {key: Coefficients(np.array([0.4, 0.1, 0.05]), np.array([0.3, 0.1, -0.2])) for key in engine.keys}
    prior = Coefficients(np.array([0.45, 0.0, 0.0]), np.array([0.2, 0.0, -0.2]))
    table = CoefficientTable(PAIR, 9, prior, rows, KNOTS)
    state.rebase(table)
    assert np.array_equal(state.arrays["A"], curvature)
    assert np.array_equal(state.hierarchy.slopes, prior.slopes)
    np.testing.assert_allclose(state.hierarchy.intercepts, prior.intercepts, atol=1e-12)
    state.refit()
    x = basis.expand(np.linspace(-1.0, 6.0, 15))
    for index, key in enumerate(state.keys):
        served, fitted = rows[key], state.row(index)
        gap = (x @ (fitted.slopes - served.slopes))[:, None] + fitted.intercepts - served.intercepts
        assert np.abs(gap).max() < 0.15


def test_rebase_of_a_fresh_state_is_the_tables_prior() -> None:
    """An engine without evidence of its own takes the fleet's prior row."""
    state = fresh()
    prior = Coefficients(np.array([0.7, 0.0, 0.1]), np.array([0.5, 0.0, -0.5]))
    state.rebase(CoefficientTable(PAIR, 3, prior, {}, KNOTS))
    table = state.table(3)
    assert np.array_equal(table.prior.slopes, prior.slopes)
    np.testing.assert_allclose(table.prior.intercepts, prior.intercepts, atol=1e-12)


def test_the_variance_for_unseen_workloads_is_the_best_over_all() -> None:
    """The prior row's request effect is the one with the least loss over all workloads; none without evidence."""
    state = fresh()
    assert state.pair_variance() == 0.0
    state.reserve(KEYS[:2])
    state.arrays["loss"][:] = [[9.0, 8.0, 7.0, 8.0, 9.0, 9.0], [9.0, 9.0, 9.0, 6.0, 9.0, 9.0]]
    assert state.pair_variance() == VARIANCE_GRID[3]


def test_a_long_stationary_stream_agrees_with_the_batch_maximum_likelihood() -> None:
    """Rounds of one engine, refitted one by one and applied, end within 3 standard errors of the exact regression."""
    knots, k, rng = (2.0,), 3, np.random.default_rng(11)
    basis, keys, B = SplineBasis(knots), KEYS[:2], 64
    truth = [
        Coefficients(np.array([0.45, 0.15]), np.array([0.1, -0.1, -0.3])),
        Coefficients(np.array([0.55, 0.2]), np.array([-0.6, -0.7, -1.0])),
    ]
    engine, state = Engine(11, k, knots, keys, requests=B), PairState(PAIR, k, knots)
    a, slots, raw, rounds = engine.accumulator, np.arange(B) % 2, [], 60
    for tick in range(1, rounds + 1):
        for _ in range(8):
            f = rng.normal(1.5, 2.5, (B, k))
            p = np.stack([truth[w].probability(basis, line) for w, line in zip(slots, f, strict=True)])
            accepted = np.cumprod(rng.random(f.shape) < p, axis=1).sum(axis=1)
            a.observe(f, slots, np.arange(B), accepted, np.full(B, k))
            raw.append((f, accepted))
        state.fold(tick, [replace(engine.round(0), steps=8)])
        a.apply([state.row(i) for i in range(2)])
    features, accepted = (np.concatenate(part) for part in zip(*raw, strict=True))
    owner = np.tile(slots, len(raw))
    for w, key in enumerate(keys):
        place, position = np.nonzero((np.arange(k) <= accepted[:, None]) & (owner == w)[:, None])
        y = (position < accepted[place]).astype(float)
        design = np.concatenate([basis.expand(features[place, position]), np.eye(k)[position]], axis=1)
        glm = sm.GLM(y, design, family=sm.families.Binomial()).fit().params
        index = state.keys.index(key)
        for name, exact in (("slope", glm[: basis.size]), ("intercept", glm[basis.size :])):
            gap = np.abs(state.arrays[f"{name}s"][index] - exact)
            assert np.all(gap <= 3.0 * state.arrays[f"{name}_errors"][index])


def test_information_is_a_view_into_the_state() -> None:
    """Scaling the information scales the state's own arrays."""
    state = fresh()
    state.fold(1, [Engine(1).round(10)])
    before = state.arrays["A"].copy()
    state.information.scale(np.full(2, 0.5))
    assert np.array_equal(state.arrays["A"], 0.5 * before)
    H = dense_hessian(Engine(1).round(10).moments, state.basis, 0)
    assert H.shape == (K + 3, K + 3)
