from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.learner.fleet import KEYS, Fleet, K, Traffic
from tests.learner.strategies import PAIR, Engine, with_moments

from accord.learner.basis import Array
from accord.learner.influence import ENGINE_MEMORY, MAX_ENGINES, SHARES, Influence
from accord.learner.moments import Moments
from accord.learner.pair_state import PairState
from accord.learner.state_codec import encode_learnt
from accord.learner.summary import RoundSummary
from accord.learner.views import pair_view

BAD = 3


def honest_rows(level: float, labels: float = 1_000.0) -> Array:
    """[1, 5] sums of an engine whose labels are off by so much in log-odds."""
    c = 0.15 * labels
    return np.array([[level * c, c, 2.0 * level * c, 2.0 * c, 8.0 * c]])


def weigh(influence: Influence, engine: str, level: float, labels: float = 1_000.0) -> float:
    """The weight of one more summary."""
    weights, _ = influence.weigh(
        engine, 1_000, np.array([0]), np.array([labels]), honest_rows(level, labels), lambda row: 1.0
    )
    return float(weights[0])


def known(levels: list[float]) -> Influence:
    """Engines that reported these levels before."""
    influence = Influence(50_000.0)
    influence.reserve(1)
    for i, level in enumerate(levels):
        weigh(influence, f"e/{i}", level)
    return influence


def test_one_that_contradicts_the_others_is_set_aside_until_it_agrees_again() -> None:
    """An outlier has no weight, is counted, and is heard again once its own record has faded."""
    influence = known([0.0, 0.05, -0.05, 0.02, -0.02])
    assert weigh(influence, "e/0", -1.5) == 0.0
    assert influence.aside.tolist() == [1_000, 0, 0, 0, 0]
    weights = [weigh(influence, "e/0", 0.0, ENGINE_MEMORY / 4) for _ in range(20)]
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
    """Of ten engines one that sends endless labels that agree gets three equal shares of the memory, no more."""
    influence = known([0.0] * 10)
    counted = sum(weigh(influence, "e/3", 0.0, 1e6) * 1e6 for _ in range(50))
    assert counted <= SHARES / 10 * 50_000.0


def test_a_large_fleet_is_known_by_its_latest_engines() -> None:
    """Records are bounded, and the engine that reported longest ago makes room."""
    influence = known([0.0] * (MAX_ENGINES + 5))
    assert len(influence.engines) == len(set(influence.engines)) == MAX_ENGINES
    assert influence.records.shape[0] == MAX_ENGINES


def test_records_without_finite_sums_judge_nobody() -> None:
    """NaN in one engine's sums neither raises nor sets others aside."""
    influence = known([0.0] * 4)
    weights, _ = influence.weigh("e/1", 1, np.array([0]), np.array([10.0]), np.full((1, 5), np.nan), lambda row: 1.0)
    assert weights.tolist() == [1.0]
    assert weigh(influence, "e/2", 0.0) == 1.0


def extreme(kind: str, s: RoundSummary) -> RoundSummary:
    """An admissible summary that no traffic gives."""
    m = s.moments
    n, zero = np.full_like(m.n, 1e6), {name: np.zeros_like(array) for name, array in m.arrays().items()}
    s = replace(s, steps=100_000)
    if kind == "gradients":
        return replace(s, moments=Moments(**{**zero, "n": n, "g1": -n}))
    c = 0.25 * n
    B, A = 2.0 * c[:, :, None] * np.eye(4)[0], np.zeros_like(m.A)
    A[:, 0] = 5.0 * c.sum(axis=1)
    s = replace(s, moments=Moments(**{**zero, "n": n, "c": c, "B": B, "A": A, "y": 0.5 * n}))
    if kind == "curvature":
        return s
    return replace(s, slopes=0.0 * s.slopes, intercepts=0.0 * s.intercepts - 5.0)


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


@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["flipped", "gradients", "curvature", "coefficients"])
def test_one_bad_engine_of_ten_moves_nobody_by_a_hundredth(kind: str, effect: float) -> None:
    """Flipped labels, or a burst of extreme admissible summaries, move served probabilities by less than 0.01."""
    honest, fair = outcome("honest", effect)
    served, fleet = outcome(kind, effect)
    assert np.abs(served - honest).max() < 0.01
    assert fleet.alarms == fair.alarms == [0, 0, 0]
    aside = dict(
        zip(fleet.learner.learnt.state.influence.engines, fleet.learner.learnt.state.influence.aside, strict=True)
    )
    if kind != "curvature":
        assert fleet.learner.counters.aside > 0
        assert aside[f"host-{BAD}/0"] == sum(aside.values()) == fleet.learner.counters.aside
        told = [entry["aside"] for p in fleet.published if (entry := json.loads(p.history))["aside"]]
        assert told
        assert all(set(item) == {f"host-{BAD}/0"} for item in told)
        view = pair_view(encode_learnt(fleet.learner.learnt), None)
        assert {line["engine"]: line["set_aside"] for line in view["influence"]} == aside
    assert sum(fair.learner.learnt.state.influence.aside) == 0
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
