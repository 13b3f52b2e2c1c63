"""Budget, admission and scores against brute force."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import many, seeds, some

from accord.learner.basis import Array
from accord.learner.simulate.budget import admit, choose_budget
from accord.learner.simulate.scores import STRICTNESS, confidence, hindsight_survival, running_minimum, survival

shapes = st.tuples(st.integers(1, 4), st.integers(1, 4))


def probabilities(seed: int, requests: int, k: int) -> Array:
    """Random probabilities [B, K], some of them exactly 0, 1 or equal."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random((requests, k)), int(rng.integers(1, 6)))
    p[rng.random(p.shape) < 0.1] = 1.0
    return p


@many
@given(seeds, shapes)
def test_budget_and_admission_find_the_best_of_all_prefixes(seed: int, shape: tuple[int, int]) -> None:
    """No choice of a number of drafts for each request has more expected tokens per cost than the one made."""
    requests, k = shape
    scores = survival(probabilities(seed, requests, k))
    costs = np.random.default_rng(seed + 1).uniform(0.5, 3.0, requests * k + 1)
    known = np.concatenate([np.zeros((requests, 1)), np.cumsum(scores, axis=1)], axis=1)
    best = max(
        (requests + sum(known[i, n] for i, n in enumerate(counts))) / costs[sum(counts)]
        for counts in itertools.product(range(k + 1), repeat=requests)
    )
    counts = admit(scores, budget := choose_budget(scores, costs))
    assert counts.sum() == budget
    mine = (requests + sum(known[i, n] for i, n in enumerate(counts))) / costs[budget]
    assert mine >= best * (1.0 - 1e-12)


@many
@given(seeds, shapes, st.integers(0, 16))
def test_admission_takes_the_highest_scores_and_only_prefixes(seed: int, shape: tuple[int, int], budget: int) -> None:
    """What is admitted fills the budget, scores no less than what is not, and is a prefix of each request's drafts."""
    requests, k = shape
    scores = survival(probabilities(seed, requests, k))
    counts = admit(scores, budget)
    taken = np.arange(k) < counts[:, None]
    assert counts.sum() == min(budget, requests * k)
    assert scores[taken].min(initial=1.0) >= scores[~taken].max(initial=0.0)


def test_of_equal_budgets_the_smallest_is_chosen() -> None:
    """Where more drafts bring nothing, none are verified."""
    assert choose_budget(np.array([[0.0, 0.0]]), np.array([1.0, 1.0, 1.0])) == 0


def test_a_steeper_cost_never_enlarges_the_budget() -> None:
    """The budget falls, from everything to nothing, as the price of a token rises."""
    scores = survival(probabilities(3, 4, 4))
    budgets = [choose_budget(scores, 10.0 + slope * np.arange(17)) for slope in np.linspace(0.0, 20.0, 40)]
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[0] == np.count_nonzero(scores)
    assert budgets[-1] == 0


@some
@given(seeds, shapes)
def test_the_running_minimum_is_the_recursion(seed: int, shape: tuple[int, int]) -> None:
    """T[0] = S[0] and T[j] = min(T[j - 1] (1 - 1e-4), S[j]), which falls strictly until it is 0."""
    p, given_draw = probabilities(seed, *shape), probabilities(seed + 1, *shape)
    score = hindsight_survival(p, given_draw)
    found = running_minimum(score)
    for row, expected in zip(found, score, strict=True):
        least = expected[0]
        for j, value in enumerate(expected):
            least = min(least * (1.0 - STRICTNESS), value) if j else least
            np.testing.assert_allclose(row[j], least, rtol=1e-12)
    assert np.all((found[:, 1:] < found[:, :-1]) | (found[:, 1:] == 0.0))


@some
@given(seeds, shapes)
def test_hindsight_multiplies_what_was_drawn_before(seed: int, shape: tuple[int, int]) -> None:
    """S[j] is the product of acceptance given the draw before j, times acceptance given q_max at j."""
    p, given_draw = probabilities(seed, *shape), probabilities(seed + 1, *shape)
    score = hindsight_survival(p, given_draw)
    for i, j in np.ndindex(score.shape):
        np.testing.assert_allclose(score[i, j], np.prod(given_draw[i, :j]) * p[i, j])
    np.testing.assert_allclose(hindsight_survival(p, p), survival(p))


@many
@given(seeds, shapes, st.integers(0, 16))
def test_hindsight_reaches_an_unchanged_scheduler(seed: int, shape: tuple[int, int], budget: int) -> None:
    """Running products in float32 of confidence[j] = T[j] / T[j - 1] admit what T admits."""
    rng = np.random.default_rng(seed)
    score = running_minimum(hindsight_survival(rng.random(shape), rng.random(shape)))
    handed_over = confidence(score).astype(np.float32)
    assert np.all((handed_over >= 0.0) & (handed_over <= 1.0))
    product = np.cumprod(handed_over, axis=1, dtype=np.float32)
    np.testing.assert_allclose(product, score, rtol=1e-5)
    np.testing.assert_array_equal(admit(product.astype(np.float64), budget), admit(score, budget))
