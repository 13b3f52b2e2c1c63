from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learner.strategies import Engine, seeds, with_moments

from accord.learner.basis import Array, sigmoid
from accord.learner.directions import Directions
from accord.learner.influence import MAX_ENGINES, Influence
from accord.learner.sketch import sketch_residuals
from accord.learner.summary import RoundSummary
from accord.learner.weighing import Scales, Weighed

KEYS = Engine(0).keys
AT_MS = 1_700_000_000_000


def scales(influence: Influence | None = None) -> Scales:
    """Nothing is known yet but the cold fit."""
    engine = Engine(0)
    if influence is None:
        influence = Influence(Directions(engine.k, engine.basis), 50_000.0, 20_000.0)
        influence.reserve(len(KEYS))
    w, f, k = len(KEYS), engine.basis.size, engine.k
    return Scales(KEYS, engine.basis, np.zeros((w, f)), np.zeros((w, k)), influence, lambda: np.ones(w))


def fleet(count: int, rounds: int = 1, seed: int = 0) -> list[RoundSummary]:
    """Rounds of some engines with one truth, in turn."""
    made = [Engine(seed, name=f"e/{i}", boot=f"{i:016x}") for i in range(count)]
    for i, engine in enumerate(made):
        engine.rng = np.random.default_rng([seed, i])
    return [engine.round(20) for _ in range(rounds) for engine in made]


def arrays(weighed: Weighed) -> list[Array]:
    """Every array of what was weighed."""
    sums = [*weighed.information.arrays().values(), weighed.n, weighed.y, weighed.loss]
    return [*sums, weighed.sketch.acceptance, weighed.sketch.survival, weighed.labels.astype(np.float64)]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 3), seeds)
def test_what_few_engines_say_is_summed_up_as_it_is(count: int, rounds: int, seed: int) -> None:
    """Of fewer than five engines the weighed sums are the sums of the summaries."""
    summaries = fleet(count, rounds, seed)
    weighed = scales().weigh(summaries, AT_MS)
    for name in ("n", "y", "loss"):
        total = sum(getattr(summary.moments, name) for summary in summaries)
        np.testing.assert_allclose(getattr(weighed, name), total, rtol=1e-12)
    e0, e1 = (sum(parts) for parts in zip(*(summary.information() for summary in summaries), strict=True))
    np.testing.assert_allclose(weighed.information.e0, e0, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weighed.information.e1, e1, rtol=1e-9, atol=1e-9)
    acceptance = sum(summary.sketch.acceptance for summary in summaries if summary.sketch)
    np.testing.assert_allclose(weighed.sketch.acceptance, acceptance, rtol=1e-12)
    assert weighed.labels.sum() == sum(summary.labels for summary in summaries)
    assert (weighed.aside, weighed.sketches_aside) == ([], 0)


@settings(deadline=None, max_examples=30)
@given(st.integers(5, 12), st.randoms(use_true_random=False), seeds)
def test_nobody_is_judged_by_when_it_spoke_in_a_tick(count: int, order: object, seed: int) -> None:
    """The same summaries in another order give the same sums but for rounding, also with a liar among them."""
    summaries = fleet(count, 2, seed)
    liar = summaries[0]
    summaries[0] = with_moments(liar, g1=liar.moments.g1 - 0.9 * liar.moments.n, y=np.zeros_like(liar.moments.y))
    mixed = list(summaries)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    # every engine's own rounds stay in order
    mixed.sort(key=lambda summary: summary.first_seq)
    first, second = scales().weigh(summaries, AT_MS), scales().weigh(mixed, AT_MS)
    for one, other in zip(arrays(first), arrays(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert {(a.engine, a.workload, round(a.labels)) for a in first.aside} == {
        (a.engine, a.workload, round(a.labels)) for a in second.aside
    }


def test_an_engine_that_lies_in_one_of_its_rounds_of_a_tick_is_set_aside_with_all_of_them() -> None:
    """Verdicts are of an engine's whole tick, and say how many labels do not count."""
    known = scales()
    for tick in range(10):
        known.weigh(fleet(8, 2, seed=tick), AT_MS + 250 * tick)
    summaries = fleet(8, 2, seed=99)
    lie = summaries[3]
    summaries[3] = with_moments(lie, g0=-50.0 * lie.moments.n.sum(axis=1)[:, None] + lie.moments.g0, g1=-lie.moments.n)
    weighed = known.weigh(summaries, AT_MS + 10_000)
    assert {item.engine for item in weighed.aside} == {"e/3"}
    honest = [summary for summary in summaries if summary.engine != "e/3"]
    assert weighed.n.sum() == pytest.approx(sum(summary.labels for summary in honest))
    assert sum(item.labels for item in weighed.aside) == pytest.approx(summaries[3].labels + summaries[11].labels)
    assert weighed.labels.sum() == sum(summary.labels for summary in summaries)


def test_more_engines_than_there_are_records_are_all_weighed() -> None:
    """In one tick 150 engines are judged in parts, and nothing of them is lost."""
    influence = scales().influence
    summaries = fleet(150)
    weighed = scales(influence).weigh(summaries, AT_MS)
    assert weighed.labels.sum() == sum(summary.labels for summary in summaries)
    assert len(set(influence.engines)) == MAX_ENGINES
    assert set(influence.engines) <= {summary.engine for summary in summaries[-2 * MAX_ENGINES :]}


def test_an_engine_that_starts_anew_opens_new_books() -> None:
    """With the first round of another boot ends what the boot before still had to show from earlier ticks."""
    engine, again = Engine(1), Engine(2, boot="00000000000000ff")
    influence = scales().influence
    scales(influence).weigh([engine.round(20, sketch=False) for _ in range(3)], AT_MS)
    last, after = engine.round(20, sketch=False), again.round(20, sketch=False)
    scales(influence).weigh([last, after], AT_MS + 250)
    assert influence.books[0].sum() == pytest.approx(last.labels + after.labels)


def test_changing_boots_costs_no_judgement_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two boots of one name that take turns within a tick are judged together, and none of their labels is lost."""
    made = [Engine(seed, boot=f"{seed:016x}") for seed in (1, 2)]
    summaries = [made[number % 2].round(5, sketch=False) for number in range(20)]
    judged, judge = list[int](), Influence.judge
    monkeypatch.setattr(Influence, "judge", lambda self, said: (judged.append(1), judge(self, said))[1])
    weighed = scales().weigh(summaries, AT_MS)
    assert len(judged) == 1
    assert weighed.labels.sum() == sum(summary.labels for summary in summaries)


def test_labels_behind_a_sketch_wait_for_the_next_one() -> None:
    """Books hold what came after an engine's last sketch of a tick, and nothing else."""
    engine = Engine(1)
    summaries = [engine.round(20, sketch=sketch) for sketch in (False, True, False, False)]
    influence = scales().influence
    weighed = scales(influence).weigh(summaries, AT_MS)
    assert influence.books[0].sum() == pytest.approx(summaries[2].labels + summaries[3].labels)
    shown = summaries[1].sketch
    assert shown is not None
    np.testing.assert_array_equal(weighed.sketch.acceptance, shown.acceptance)


def test_a_summary_of_no_workloads_weighs_nothing() -> None:
    """Rounds in which nothing was decoded pass without a trace."""
    weighed = scales().weigh([fleet(1)[0].only([])], AT_MS)
    assert weighed.labels.tolist() == [0] * len(KEYS)


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_residuals_of_sketches_are_those_of_their_cells(seed: int) -> None:
    """Each label counts with the mean feature of its cell: r, v, r f, v f and v f f add up over cells."""
    rng, engine = np.random.default_rng(seed), Engine(seed)
    sketch = engine.round(20).sketch
    assert sketch is not None
    slopes, intercepts = rng.normal(size=(len(KEYS), engine.basis.size)), rng.normal(size=(len(KEYS), engine.k))
    wanted = np.zeros((len(KEYS), 5))
    for w, k, b in np.argwhere(sketch.acceptance[..., 0] > 0.0):
        n, y, total = sketch.acceptance[w, k, b]
        f = total / n
        p = float(sigmoid(engine.basis.expand(f) @ slopes[w] + intercepts[w, k]))
        r, v = y - n * p, n * p * (1.0 - p)
        wanted[w] += [r, v, r * f, v * f, v * f * f]
    found = sketch_residuals(sketch.acceptance, engine.basis, slopes, intercepts)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
