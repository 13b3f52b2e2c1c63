"""The engine's side as a whole, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.hooks.harness import KNOTS, PAIR, Clock, table

from accord.hooks.agent import Agent, Applied
from accord.hooks.engine import EngineSide
from accord.hooks.outbox import RoundParts
from accord.hooks.settings import AgentSettings
from accord.hooks.standing import State
from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable


class Desk(Agent):
    """An agent that keeps what was put, and hands out what a test lays there."""

    def __init__(self, **values: Any) -> None:
        values = {"knots": KNOTS, "round_steps": (2, 3), "sketch_every": 2, **values}
        super().__init__(PAIR, AgentSettings(**values), Clock())
        self.rounds: list[RoundParts] = []
        self.next: CoefficientTable | None = None

    def put(self, parts: RoundParts) -> bool:
        """Keeps it."""
        self.rounds.append(parts)
        return super().put(parts)

    def boundary(self) -> Applied:
        """What was laid there, else what was in force."""
        if self.next is not None:
            self.applied = Applied(State.FLEET, self.next.version, self.next)
        return self.applied


class Traffic:
    """Random decode steps of a few requests."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def step(self, keys: Sequence[str]) -> dict[str, Any]:
        """One step, one request a key."""
        admitted = self._rng.integers(0, PAIR.k + 1, len(keys))
        return {
            "features": self._rng.normal(1.0, 2.0, (len(keys), PAIR.k)),
            "keys": keys,
            "requests": [f"r{i}" for i in range(len(keys))],
            "accepted": self._rng.integers(0, admitted + 1),
            "admitted": admitted,
        }


KEYS = ("code:greedy", "chat:warm", "code:greedy")


def test_rounds_follow_the_schedule() -> None:
    """A round is handed over exactly at its last step, with the steps it covers."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    handed = []
    for _ in range(11):
        side.step(**traffic.step(KEYS))
        handed.append(len(desk.rounds))
    assert handed == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert [item.steps for item in desk.rounds] == [2, 3, 3, 3]
    assert side.errors == {}


def test_sums_equal_the_reference() -> None:
    """What is handed over equals the reference accumulator's sums over the same steps, by workload."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    reference = Accumulator(PAIR.k, SplineBasis(KNOTS), 2, 3)
    for _ in range(2):
        step = traffic.step(KEYS)
        side.step(**step)
        reference.observe(
            step["features"], np.array([0, 1, 0]), np.array([0, 1, 2]), step["accepted"], step["admitted"]
        )
    handed = desk.rounds[0]
    assert handed.workloads == ("code:greedy", "chat:warm")
    for name, array in reference.moments.arrays().items():
        np.testing.assert_array_equal(getattr(handed.moments, name), array)
    assert side.labels == handed.labels


def test_only_workloads_with_labels() -> None:
    """A workload that taught nothing in a round is not in its summary, and a round without labels is none."""
    desk, traffic = Desk(round_steps=(1,), sketch_every=1000), Traffic()
    side = EngineSide(desk)
    for key in ("code:greedy", "chat:warm"):
        step = traffic.step([key])
        side.step(**{**step, "admitted": [3], "accepted": [1]})
    side.step(**{**traffic.step(["code:greedy"]), "admitted": [0], "accepted": [0]})
    assert [item.workloads for item in desk.rounds] == [("code:greedy",), ("chat:warm",)]


def test_sketches_ride_along() -> None:
    """Every second round, as configured here, carries a sketch of all labels since the last one."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    for _ in range(2 + 3 * 3):
        side.step(**traffic.step(KEYS))
    assert [item.sketch is not None for item in desk.rounds] == [False, True, False, True]
    for place in (1, 3):
        sketch = desk.rounds[place].sketch
        assert sketch is not None
        assert sketch.acceptance[..., 0].sum() == desk.rounds[place - 1].labels + desk.rounds[place].labels


def test_table_applies_at_the_boundary() -> None:
    """A new table is in force for every workload from the boundary on, and not a step earlier."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    step = traffic.step(KEYS)
    side.step(**step)
    cold = side.predict(step["features"], KEYS, ["x", "y", "z"])
    desk.next = table(4, level=1.5)
    np.testing.assert_array_equal(side.predict(step["features"], KEYS, ["x", "y", "z"]), cold)
    side.step(**step)
    row = desk.next.row("code:greedy")
    warm = side.predict(step["features"], KEYS, ["x", "y", "z"])
    np.testing.assert_allclose(warm, row.probability(SplineBasis(KNOTS), step["features"]))
    assert side.applied.version == 4
    for _ in range(3):
        side.step(**step)
    assert [item.version for item in desk.rounds] == [0, 4]
    np.testing.assert_array_equal(desk.rounds[1].intercepts[0], row.intercepts)


def test_new_workload_gets_its_row_at_once() -> None:
    """A key that appears in the middle of a round is predicted with its own row, an unknown one with the prior."""
    desk, traffic = Desk(), Traffic()
    known = Coefficients([0.9, 0.0, 0.0], [1.0] * PAIR.k)
    prior = Coefficients([0.3, 0.0, 0.0], [-1.0] * PAIR.k)
    desk.next = CoefficientTable(PAIR.id, 2, prior, {"code:greedy": known}, KNOTS, 1)
    side = EngineSide(desk)
    for _ in range(2):
        side.step(**traffic.step(["chat:warm"]))
    features = np.zeros((2, PAIR.k))
    found = side.predict(features, ["code:greedy", "math:hot"], ["a", "b"])
    np.testing.assert_allclose(found[0], known.probability(SplineBasis(KNOTS), features[0]))
    np.testing.assert_allclose(found[1], prior.probability(SplineBasis(KNOTS), features[1]))


def test_request_effect_is_forgotten_with_the_request() -> None:
    """A request's own effect shifts its predictions, and a new request in its row starts without."""
    desk = Desk(round_steps=(1,))
    row = Coefficients([0.5, 0.0, 0.0], [0.0] * PAIR.k, 0.4)
    desk.next = CoefficientTable(PAIR.id, 2, row, {}, KNOTS, 1)
    side = EngineSide(desk)
    features = np.zeros((1, PAIR.k))
    for _ in range(6):
        side.step(features, ["code:greedy"], ["a"], [3], [3])
    hard = side.predict(features, ["code:greedy"], ["a"])
    assert hard[0, 0] > 0.55
    side.finish(["a", "unknown"])
    np.testing.assert_allclose(side.predict(features, ["code:greedy"], ["b"]), 0.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"features": None},
        {"features": np.zeros((3, PAIR.k + 1))},
        {"features": "text"},
        {"keys": ("no colon",) * 3},
        {"keys": (None,) * 3},
        {"accepted": [4, 4, 4]},
        {"accepted": [-1, 0, 0]},
        {"admitted": [0, 0]},
        {"requests": [[], [], []]},
        {"requests": ["a"]},
    ],
)
def test_step_never_raises(bad: dict[str, Any]) -> None:
    """A step that makes no sense teaches nothing, is counted, and still counts as a step of its round."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    side.step(**{**traffic.step(KEYS), **bad})
    good = {**traffic.step(KEYS), "accepted": [1, 1, 1], "admitted": [3, 3, 3]}
    side.step(**good)
    assert sum(side.errors.values()) == 1
    assert [(item.steps, item.labels) for item in desk.rounds] == [(2, 6)]


def test_nan_row_is_left_out() -> None:
    """A request whose features hold a NaN teaches nothing; the others of its step do."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    for _ in range(2):
        step = {**traffic.step(KEYS), "accepted": [1, 1, 1], "admitted": [3, 3, 3]}
        step["features"][1, 2] = np.nan
        side.step(**step)
    assert desk.rounds[0].workloads == ("code:greedy",)
    assert desk.rounds[0].labels == side.labels == 8
    assert np.isfinite(desk.rounds[0].moments.A).all()


def test_predict_never_raises() -> None:
    """A prediction that fails asks for everything to be verified."""
    side = EngineSide(Desk())
    np.testing.assert_array_equal(side.predict(np.zeros((2, 9)), ["a:warm", "b:warm"], [1, 2]), np.ones((2, PAIR.k)))


def test_many_workloads_lose_no_label() -> None:
    """With more workloads than rows, every label is in a summary, under its own key or as other of its class."""
    desk, traffic = Desk(round_steps=(1,), sketch_every=3), Traffic()
    side = EngineSide(desk, workloads=10)
    rng = np.random.default_rng(1)
    for _ in range(60):
        keys = [f"lora-{i}:{rng.choice(['warm', 'greedy'])}" for i in rng.integers(0, 40, 5)]
        side.step(**traffic.step(keys))
    side.close()
    assert side.errors == {}
    assert sum(item.labels for item in desk.rounds) == side.labels
    sketched = sum(item.sketch.acceptance[..., 0].sum() for item in desk.rounds if item.sketch is not None)
    assert sketched == side.labels
    assert desk.status()["lost_reasons"] == {}
    assert len({key for item in desk.rounds for key in item.workloads}) <= 64


def test_ranks_agree() -> None:
    """Two ranks that see the same steps and the same tables hand over identical rounds."""
    desks = Desk(), Desk()
    sides = [EngineSide(desk, workloads=9) for desk in desks]
    traffic = Traffic()
    rng = np.random.default_rng(2)
    for turn in range(40):
        step = traffic.step([f"w{i}:warm" for i in rng.integers(0, 6, 4)])
        for desk, side in zip(desks, sides, strict=True):
            if turn % 7 == 0:
                desk.next = table(turn + 1, level=0.01 * turn)
            side.step(**step)
    assert len(desks[0].rounds) == len(desks[1].rounds) > 5
    for one, other in zip(desks[0].rounds, desks[1].rounds, strict=True):
        assert one.workloads == other.workloads
        np.testing.assert_array_equal(one.moments.A, other.moments.A)
        np.testing.assert_array_equal(one.intercepts, other.intercepts)


def test_close_hands_over_the_open_round() -> None:
    """What was observed since the last boundary, and the last sketch, is handed over at a shutdown."""
    desk, traffic = Desk(), Traffic()
    side = EngineSide(desk)
    for _ in range(4):
        side.step(**traffic.step(KEYS))
    side.close()
    side.close()
    assert [item.steps for item in desk.rounds] == [2, 2]
    assert sum(item.labels for item in desk.rounds) == side.labels
    assert desk.rounds[-1].sketch is not None
    assert desk.rounds[-1].sketch.acceptance[..., 0].sum() == side.labels
