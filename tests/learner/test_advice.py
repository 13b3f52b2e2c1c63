"""Whether speculation pays, and with which K."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.learner.advice import Cost, Pays, advise, advise_state, advise_survival, best_by_batch
from accord.learner.coefficients import Coefficients
from accord.learner.costs import CostCurve, EngineCosts
from accord.learner.errors import Refusal
from accord.learner.evaluate.synthetic import Source, synthetic
from accord.learner.pair import Method
from accord.learner.sketch import Sketch
from accord.learner.state_codec import Learnt, encode_learnt

survivals = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=16).map(lambda rates: np.cumprod(rates))


def sketch(*counts: tuple[float, float]) -> np.ndarray:
    """An acceptance sketch with labels and accepted of each position in one cell."""
    cells = np.zeros((len(counts), 64, 3))
    for j, (labels, accepted) in enumerate(counts):
        cells[j, 20] = (labels, accepted, 1.1 * labels)
    return cells


def test_advice_counts_what_was_accepted() -> None:
    """Survival, conditional acceptance, and tokens per step for every K are the shares of a stream's own blocks."""
    trace = synthetic([Source("chat:hot", Coefficients([0.6], [0.2, 0.0, -0.2]))], k=3, steps=300).trace
    found = Sketch.zeros(1, 3)
    features = trace.features.astype(np.float64)
    found.observe(trace.workload, features, features, trace.accepted, trace.labelled, trace.labelled)
    advice = advise(found.acceptance[0], None)
    for j in range(3):
        assert advice.acceptance[j] == pytest.approx((trace.accepted > j).mean())
        assert advice.conditional[j] == pytest.approx((trace.accepted > j).sum() / (trace.accepted >= j).sum())
        assert advice.tokens_per_step[j] == pytest.approx(1.0 + np.minimum(trace.accepted, j).mean())
    assert advice.mean_accepted_length == pytest.approx(trace.accepted.mean())
    assert (advice.labels, advice.notes) == (trace.labels, [])


@given(survivals, st.floats(0.0, 2.0))
def test_the_best_k_has_the_most_tokens_per_cost(survival: np.ndarray, ratio: float) -> None:
    """best_k is the first of the largest ratios, tokens grow with K by survival, and the gains are ratios to none."""
    k = len(survival)
    found = advise_survival(survival, Cost.of_ratio(k, ratio), 1000.0)
    per_cost = [(1.0 + survival[:m].sum()) / (1.0 + ratio * m) for m in range(k + 1)]
    assert found.tokens_per_cost == pytest.approx(per_cost)
    assert found.best_k is not None
    assert per_cost[found.best_k] == pytest.approx(max(per_cost))
    assert found.gain == pytest.approx(per_cost[k] / per_cost[0])
    assert found.best_gain == pytest.approx(max(per_cost) / per_cost[0])
    json.dumps(found.to_dict(), allow_nan=False)


@given(survivals)
def test_break_even_is_where_nothing_is_gained(survival: np.ndarray) -> None:
    """At the break-even ratio the K in use brings exactly what no speculation does."""
    ratio = advise_survival(survival, None, 1.0).break_even_ratio
    assert ratio is not None
    assert advise_survival(survival, Cost.of_ratio(len(survival), ratio), 1.0).gain == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ratio", "verdict", "best"),
    [(0.02, Pays.HELPS, 4), (0.35, Pays.HELPS, 3), (0.6, Pays.MARGINAL, 2), (0.9, Pays.HURTS, 0)],
)
def test_verdict_with_costs(ratio: float, verdict: Pays, best: int) -> None:
    """The dearer the draft, the smaller the best K and the worse the verdict on the K in use."""
    found = advise_survival(np.array([0.85, 0.7, 0.6, 0.5]), Cost.of_ratio(4, ratio), 1.0)
    assert (found.verdict, found.best_k) == (verdict, best)


def test_the_message_names_the_better_k() -> None:
    """It says what the K in use brings, and which K would bring more, or that none pays."""
    survival = np.array([0.8, 0.2, 0.1])
    better = advise_survival(survival, Cost.of_ratio(3, 0.2), 1.0)
    assert better.message.startswith("K = 3 brings 2.10 tokens per step and 1.31 times the tokens per cost of none")
    assert "K = 1 would bring 1.50 times" in better.message
    none = advise_survival(survival, Cost.of_ratio(3, 1.0), 1.0)
    assert (none.best_k, none.verdict) == (0, Pays.HURTS)
    assert "no K pays" in none.message


@pytest.mark.parametrize("cost", [None, Cost.of_ratio(3, 0.05)])
def test_below_two_tokens_is_named(cost: Cost | None) -> None:
    """Below two tokens per step the usual sign is named, with costs and without; above it is not."""
    low = advise_survival(np.array([0.5, 0.2, 0.1]), cost, 1.0)
    high = advise_survival(np.array([0.8, 0.6, 0.5]), cost, 1.0)
    assert "usual sign that speculation costs more than it brings" in low.message
    assert "usual sign" not in high.message


@pytest.mark.parametrize(
    ("survival", "verdict"),
    [
        ([0.5, 0.3], Pays.HURTS),
        ([0.8, 0.3], Pays.MARGINAL),
        ([0.9, 0.8], Pays.HELPS),
        ([0.3], Pays.HURTS),
        ([0.5], Pays.MARGINAL),
        ([0.85], Pays.HELPS),
    ],
)
def test_verdict_without_costs(survival: list[float], verdict: Pays) -> None:
    """Without costs the usual sign decides; K = 1 can never reach two tokens, so there its acceptance does."""
    found = advise_survival(np.array(survival), None, 1.0)
    assert (found.verdict, found.best_k, found.tokens_per_cost) == (verdict, None, None)
    assert "costs are not known" in found.message


def test_few_labels_say_nothing() -> None:
    """With too few drafts there are no figures and no verdict."""
    for cells in (sketch((199.0, 150.0), (150.0, 100.0)), sketch((0.0, 0.0))):
        found = advise(cells, Cost.of_ratio(len(cells), 0.1))
        assert (found.verdict, found.best_k) == (Pays.UNKNOWN, None)
        assert found.tokens_per_step == [None] * (len(cells) + 1)
        assert "too few" in found.message
        assert best_by_batch(found, EngineCosts(CostCurve((8,), (1.0,)), CostCurve((8,), (1.0,))), Method.MTP) == []


def test_a_position_with_few_labels_is_taken_like_the_one_before() -> None:
    """It borrows the acceptance before it, its own share is null, and a note says so."""
    found = advise(sketch((1000.0, 100.0), (100.0, 50.0), (19.0, 0.0)), None)
    assert found.conditional == [0.1, 0.5, None]
    assert found.acceptance == pytest.approx([0.1, 0.05, 0.025])
    assert any("position 2 and later have fewer than 20" in note for note in found.notes)


def test_nothing_accepted_is_nothing_gained() -> None:
    """A draft that is always rejected leaves one token a step, for every K."""
    found = advise(sketch((1000.0, 0.0), (0.0, 0.0)), None)
    assert found.tokens_per_step == [1.0, 1.0, 1.0]
    assert found.verdict is Pays.HURTS


def test_trimmed_drafts_are_noted() -> None:
    """Fewer labels than accepted drafts before them mean that engines trim: a note says what that does."""
    whole, trimmed = sketch((1000.0, 800.0), (800.0, 600.0)), sketch((1000.0, 800.0), (500.0, 400.0))
    assert advise(whole, None).notes == []
    (note,) = advise(trimmed, None).notes
    assert "from position 1 on only confident drafts were verified" in note


def test_an_engine_pads_so_the_best_k_fills_the_graph() -> None:
    """With levels of 8 tokens, K = 7 costs one request what K = 1 does, and is the best; at 8 requests it is not."""
    costs = EngineCosts(
        CostCurve((8,), (0.5,)), CostCurve(tuple(range(8, 129, 8)), tuple(5.0 + 3.0 * i for i in range(16)))
    )
    survival = np.cumprod(np.full(7, 0.6))
    one, eight = (
        advise_survival(survival, Cost.of_engine(7, "e", costs, batch, Method.DFLASH), 1.0) for batch in (1, 8)
    )
    assert (one.best_k, eight.best_k) == (7, 0)
    assert (one.cost_source, one.cost_unit) == ("engine:e", "ms per step")
    rows = best_by_batch(one, costs, Method.DFLASH)
    assert [(row["batch"], row["best_k"]) for row in rows][::3] == [(1, 7), (8, 0)]
    assert rows[0]["gain"] == one.best_gain


def test_advice_from_a_state() -> None:
    """A learnt workload is advised on its own sketch; an unseen one or an unlearnt pair has no labels."""
    learnt = Learnt.new("p", 2, ())
    learnt.state.reserve(["code:greedy", "chat:hot"])
    learnt.state.arrays["acceptance"][1] = sketch((1000.0, 500.0), (500.0, 100.0))
    body = encode_learnt(learnt)
    assert advise_state(body, "chat:hot", 2, None).acceptance == [0.5, 0.1]
    for nothing in (advise_state(body, "x:hot", 2, None), advise_state(None, "chat:hot", 2, None)):
        assert (nothing.labels, nothing.verdict, nothing.acceptance) == (0.0, Pays.UNKNOWN, [None, None])
    with pytest.raises(Refusal):
        advise_state(b"junk", "chat:hot", 2, None)
