from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import KEYS, Fleet, K, Traffic
from tests.learner.strategies import PAIR, Engine, with_moments

from accord.learner.basis import Array, SplineBasis
from accord.learner.directions import COMMON, Directions
from accord.learner.influence import ENGINE_MEMORY, MAX_ENGINES, PLAUSIBLE, SHARES, Influence, Said
from accord.learner.moments import GRID, Moments
from accord.learner.pair_state import PairState
from accord.learner.sketch import BINS, CHANNELS, LOW, SURVIVAL_BINS, WIDTH, Sketch
from accord.learner.state_codec import encode_learnt
from accord.learner.summary import RoundSummary
from accord.learner.views import pair_view

BAD = 3


def honest_rows(level: float, labels: float = 1_000.0) -> Array:
    """[1, D] sums of an engine whose labels of one position are off by so much in log-odds."""
    c = 0.15 * labels
    return np.array([[level * c, c, 2.0 * level * c, 2.0 * c, 8.0 * c, level * c, c]])


def judged(
    influence: Influence,
    engine: str,
    residuals: Array | None = None,
    labels: float = 0.0,
    *,
    accepted: float = 0.0,
    loss: Array | None = None,
    shown: tuple[float, float] = (0.0, 0.0),
    shown_residuals: Array | None = None,
    first: bool = False,
) -> tuple[float, float, bool]:
    """What one engine's word of a tick counts: evidence, sketch, and whether what it gains is believed."""
    place = influence.place({engine: first}, 1_000)[engine]

    def laid(values: object, *shape: int) -> Array:
        table = np.zeros((len(influence.engines), 1, *shape))
        table[place, 0] = 0.0 if values is None else values
        return table

    width = influence.directions.width
    said = Said(
        1_000.0, laid(labels), laid(accepted), laid(residuals, width), laid(loss, GRID), laid(None, 2),
        laid((sum(shown), shown[0]), 2), laid(shown_residuals, 5), np.full(len(influence.engines), True), np.ones(1),
    )  # fmt: skip
    verdict = influence.judge(said)
    found = verdict.weights, verdict.sketch_weights, verdict.gains
    weight, sketch, gains = (array[place, 0] for array in found)
    return float(weight), float(sketch), bool(gains)


def weigh(influence: Influence, engine: str, level: float, labels: float = 1_000.0, curvature: float = 1.0) -> float:
    """The weight of one more summary, whose sum v is told to be so many times what it should be."""
    return judged(influence, engine, curvature * honest_rows(level, labels)[0], labels)[0]


def known(levels: list[float]) -> Influence:
    """Engines that reported these levels before."""
    influence = Influence(Directions(1, SplineBasis(())), 50_000.0, 20_000.0)
    influence.reserve(1)
    for i, level in enumerate(levels):
        weigh(influence, f"e/{i}", level)
    return influence


def sketched(influence: Influence, engine: str, shown: tuple[float, float], level: float = 0.0) -> float:
    """The weight of a sketch with so many accepted and rejected labels, off by so much in log-odds."""
    return judged(influence, engine, shown=shown, shown_residuals=honest_rows(level, sum(shown))[0, :COMMON])[1]


def booked(influence: Influence, engine: str, labels: float, accepted: float) -> None:
    """An engine's first round, with labels of which the sketch is still to come."""
    judged(influence, engine, honest_rows(0.0, labels)[0], labels, accepted=accepted, first=True)


def test_one_that_contradicts_the_others_is_set_aside_until_it_agrees_again() -> None:
    """An outlier has no weight, is counted, and is heard again once its own record has faded."""
    influence = known([0.0, 0.05, -0.05, 0.02, -0.02])
    assert weigh(influence, "e/0", -1.5) == 0.0
    assert influence.aside.tolist() == [1_000, 0, 0, 0, 0]
    weights = [weigh(influence, "e/0", 0.0, ENGINE_MEMORY / 4) for _ in range(10)]
    assert weights[0] == 0.0
    assert weights[-1] == 1.0


def test_a_change_that_most_engines_see_sets_nobody_aside_for_long() -> None:
    """When the traffic changes, at most a quarter of the engines wait for the others to agree."""
    influence = known([0.0] * 8)
    weights = [weigh(influence, f"e/{i}", -1.0, 4_000.0) for i in range(8)]
    assert sum(weight == 0.0 for weight in weights) <= 3
    assert weights[-1] == 1.0


@pytest.mark.parametrize("engines", [1, 2, 4])
def test_fewer_than_five_engines_cannot_be_told_apart(engines: int) -> None:
    """A few engines that disagree all count in full, whatever they say."""
    influence = known([0.0] * (engines - 1))
    assert weigh(influence, "other/0", 3.0, 1e9) == 1.0


def test_no_engine_counts_for_more_than_its_share() -> None:
    """Of ten engines one that sends endless labels that agree gets one and a half equal shares of the memory."""
    influence = known([0.0] * 10)
    counted = sum(weigh(influence, "e/3", 0.0, 1e6) * 1e6 for _ in range(50))
    assert counted <= SHARES / 10 * 50_000.0


def test_a_large_fleet_is_known_by_its_latest_engines() -> None:
    """Records are bounded, and the engine that reported longest ago makes room."""
    influence = known([0.0] * (MAX_ENGINES + 5))
    assert len(influence.engines) == len(set(influence.engines)) == MAX_ENGINES
    assert influence.records.shape[0] == MAX_ENGINES


def test_records_without_finite_sums_judge_nobody() -> None:
    """Of an engine whose sums hold NaN nothing counts, and nobody else is set aside."""
    influence = known([0.0] * 4)
    assert judged(influence, "e/1", np.full(influence.directions.width, np.nan), 10.0)[0] == 0.0
    assert influence.aside.tolist() == [0, 10, 0, 0]
    assert weigh(influence, "e/2", 0.0) == 1.0


def test_labels_that_claim_more_curvature_count_as_so_many_more() -> None:
    """Thrice the information for each label reaches an engine's share with a third of the labels."""
    plain, steep = known([0.0] * 10), known([0.0] * 10)
    counted = [sum(weigh(i, "e/3", 0.0, 2e3, c) for _ in range(50)) for i, c in ((plain, 1.0), (steep, 3.0))]
    assert counted[1] < 0.5 * counted[0]


def test_labels_with_next_to_no_curvature_are_hardly_believed() -> None:
    """Counts that no information goes with cannot crowd out what others know, and book no sketch."""
    influence = known([0.0] * 5)
    assert weigh(influence, "e/2", 0.0, 1e5, 1e-4) == pytest.approx(PLAUSIBLE * 1e-4)
    judged(influence, "e/2", 1e-4 * honest_rows(0.0, 1e5)[0], 1e5, accepted=5e4, first=True)
    assert influence.books[2, 0].sum() == pytest.approx(PLAUSIBLE * 1e-4 * 1e5, rel=0.01)


@pytest.mark.parametrize("engines", [1, 10])
def test_a_sketch_cannot_show_labels_that_no_summary_had(engines: int) -> None:
    """What an engine's summaries had is shown once; more, or more accepted of as many, is set aside."""
    influence = known([0.0] * engines)
    booked(influence, "e/0", 100.0, 60.0)
    assert sketched(influence, "e/0", (61.0, 39.0)) == 0.0
    assert influence.sketch_aside[0] == 100
    booked(influence, "e/0", 100.0, 60.0)
    assert sketched(influence, "e/0", (30.0, 20.0)) == 1.0
    assert sketched(influence, "e/0", (30.0, 20.0)) == 1.0
    assert sketched(influence, "e/0", (30.0, 20.0)) == 0.0


def test_the_books_of_an_engine_that_was_there_before_open_with_its_first_sketch() -> None:
    """A learner that never saw an engine's first rounds believes its first sketch, and checks those that follow."""
    influence = known([0.0])
    assert sketched(influence, "e/0", (3_000.0, 2_000.0)) == 1.0
    assert sketched(influence, "e/0", (30.0, 20.0)) == 0.0


def test_sketches_are_held_to_shares_and_agreement_as_evidence_is() -> None:
    """A sketch that contradicts nine others is set aside; one that agrees counts for one and a half shares."""
    influence = known([0.0] * 10)
    for i in range(10):
        assert sketched(influence, f"e/{i}", (300.0, 200.0)) == 1.0
        influence.books[i] = 1e9
    assert sketched(influence, "e/0", (300.0, 200.0), level=-1.5) == 0.0
    assert sketched(influence, "e/1", (6e5, 4e5)) * 1e6 <= SHARES / 10 * 20_000.0


def test_what_one_engine_claims_to_gain_from_request_effects_does_not_count_against_the_others() -> None:
    """Log-losses that make a variance look far better than they do for four other engines have no say."""
    influence = known([0.0] * 5)
    residuals, loss = honest_rows(0.0)[0], np.linspace(600.0, 590.0, GRID)
    assert all(judged(influence, f"e/{i}", residuals, 1_000.0, loss=loss)[2] for i in range(5))
    assert not judged(influence, "e/2", residuals, 1_000.0, loss=np.where(np.arange(GRID) == 5, 0.0, loss))[2]
    assert judged(influence, "e/3", residuals, 1_000.0, loss=loss)[2]


def extreme(kind: str, s: RoundSummary) -> RoundSummary:
    """An admissible summary that no traffic gives."""
    m = s.moments
    n, zero = np.full_like(m.n, 1e6), {name: np.zeros_like(array) for name, array in m.arrays().items()}
    s = replace(s, steps=100_000)
    if kind == "gradients":
        return replace(s, moments=Moments(**{**zero, "n": n, "g1": -n}))
    if kind.startswith("sketch"):
        return forged(kind, s)
    if kind == "losses":
        loss = np.where(np.arange(GRID) == (0 if m.loss[:, 0].sum() > m.loss[:, -1].sum() else GRID - 1), 0.0, m.loss)
        return replace(s, moments=replace(m, loss=loss))
    c = 0.25 * n
    B, A = 2.0 * c[:, :, None] * np.eye(4)[0], np.zeros_like(m.A)
    A[:, 0] = 5.0 * c.sum(axis=1)
    s = replace(s, moments=Moments(**{**zero, "n": n, "c": c, "B": B, "A": A, "y": 0.5 * n}))
    if kind == "curvature":
        return s
    return replace(s, slopes=0.0 * s.slopes, intercepts=0.0 * s.intercepts - 5.0)


def forged(kind: str, s: RoundSummary) -> RoundSummary:
    """A summary whose sketches no label has made, with honest gradients; `cooked`: counts that fit the sketches."""
    n = np.zeros((len(KEYS), K, BINS))
    n[..., 12:50] = 1e6 if "burst" in kind else 30.0
    share = np.full((K, 1), 0.0)
    if "positions" in kind:  # errors that cancel in level and in slope
        share = np.array([0.2, 0.9, 0.2, 0.9])[:, None]
    middle = LOW + WIDTH * (np.arange(BINS) + 0.5)
    acceptance = np.stack([n, n * share, n * middle], axis=-1)
    m = s.moments
    if "cooked" in kind:
        counts, y = acceptance[..., 0].sum(axis=2), acceptance[..., 1].sum(axis=2)
        m = replace(m, n=np.ceil(counts + m.n), y=y + m.y)
    return replace(s, moments=m, sketch=Sketch(acceptance, np.zeros((len(KEYS), K, SURVIVAL_BINS, CHANNELS))))


@cache
def outcome(kind: str, effect: float) -> tuple[Array, Fleet]:
    """What ten engines are served over 24 rounds after 20 good ones, the fourth of them behaving as told."""
    fleet = Fleet(10, 16, 0)
    fleet.run(Traffic(effect=effect), 20)
    sent = [0]

    def alter(index: int, summary: RoundSummary) -> RoundSummary:
        if index != BAD or sent[0] >= 10:
            return summary
        sent[0] += 1
        return extreme(kind, summary)

    if kind == "flipped":
        fleet.engines[BAD].flip = 0.1
    elif kind != "honest":
        fleet.alter = alter
    served = []
    for _ in range(6):
        fleet.run(Traffic(effect=effect), 4)
        served.append(fleet.probabilities())
    return np.stack(served), fleet


ATTACKS = [
    *itertools.product(("flipped", "gradients", "curvature", "coefficients"), (0.0, 0.5)),
    ("losses", 0.5),
    ("sketch burst", 0.5),
    ("sketch burst cooked", 0.5),
    ("sketch burst positions cooked", 0.0),
    ("sketch positions", 0.5),
    ("sketch cooked", 0.5),
]


@pytest.mark.parametrize(("kind", "effect"), ATTACKS)
def test_one_bad_engine_of_ten_moves_nobody_by_a_hundredth(kind: str, effect: float) -> None:
    """Flipped labels, or a burst of extreme admissible summaries, move served probabilities by less than 0.01."""
    honest, fair = outcome("honest", effect)
    served, fleet = outcome(kind, effect)
    assert np.abs(served - honest).max() < 0.01
    assert fleet.alarms == fair.alarms == [0, 0, 0]
    aside = dict(
        zip(fleet.learner.learnt.state.influence.engines, fleet.learner.learnt.state.influence.aside, strict=True)
    )
    assert [row.request_variance for row in fleet.learner.learnt.served.workloads.values()] == [
        row.request_variance for row in fair.learner.learnt.served.workloads.values()
    ] or kind == "flipped"
    if kind.startswith("sketch"):
        assert fleet.learner.counters.sketches_aside > 0
    elif kind not in ("curvature", "losses"):
        assert fleet.learner.counters.aside > 0
        assert aside[f"host-{BAD}/0"] == sum(aside.values()) == fleet.learner.counters.aside
        told = [entry["aside"] for p in fleet.published if (entry := json.loads(p.history))["aside"]]
        assert told
        assert all(set(item) == {f"host-{BAD}/0"} for item in told)
        view = pair_view(encode_learnt(fleet.learner.learnt), None)
        assert {line["engine"]: line["set_aside"] for line in view["influence"]} == aside
    assert fair.learner.counters.aside == fair.learner.counters.sketches_aside == 0
    assert set(fleet.learner.learnt.served.workloads) == set(KEYS)
    assert fleet.learner.learnt.state.k == K


def test_labels_that_do_not_count_are_counted_all_the_same() -> None:
    """What an engine sent and what the learner took in are equal, also where it was set aside or had its share."""
    state = PairState(PAIR, 3, (0.0, 2.0))
    engines = [Engine(i, name=f"e-{i}/0", requests=20) for i in range(8)]
    sent = 0
    for tick in range(6):
        made = [engine.round(20) for engine in engines]
        flipped = with_moments(made[0], g0=-20.0 * made[0].moments.g0, g1=0.9 * made[0].moments.n)
        state.fold(250 * (tick + 1), [flipped, *made[1:]])
        sent += sum(summary.labels for summary in made)
    assert int(state.labels.sum()) == sent
    assert state.influence.aside.sum() > 0
