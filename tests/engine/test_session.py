"""What a session does at requests, steps and boundaries, on real kernels and without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.hooks.agent import Agent, Applied
from accord.hooks.outbox import RoundParts
from accord.hooks.settings import AgentSettings
from accord.hooks.standing import State
from accord.hooks.vllm.estimator import AcceptanceEstimator
from accord.hooks.vllm.facade import Facade
from accord.hooks.vllm.ranks import Ranks
from accord.hooks.vllm.session import Session
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.pair import DraftSampling, Method, Pair

pytestmark = pytest.mark.engine

K, SLOTS, REQUESTS, VOCABULARY = 2, 9, 8, 50
PAIR = Pair("target", "draft", Method.DRAFT_MODEL, DraftSampling.GREEDY, K)
BASIS = SplineBasis(())


class Alone:
    """A TP group of one."""

    world_size, rank_in_group = 1, 0

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        """Nobody else is there."""
        return obj


class StubAgent(Agent):
    """Keeps what it is given, and serves what a test puts in force."""

    def __init__(self) -> None:
        super().__init__(PAIR, AgentSettings(engine="host/0", knots=()))
        self.rounds: list[RoundParts] = []

    def put(self, parts: RoundParts) -> bool:
        """Keeps it."""
        self.rounds.append(parts)
        return True

    def boundary(self) -> Applied:
        """What the test said."""
        return self.applied

    def serve(self, version: int, **levels: float) -> CoefficientTable:
        """From the next boundary on."""
        rows = {name.replace("_", ":"): Coefficients([0.7], [level] * K) for name, level in levels.items()}
        table = CoefficientTable(PAIR.id, version, Coefficients([0.6], [0.0] * K), rows, ())
        self.applied = Applied(State.FLEET, version, table)
        return table


class Rig:
    """A session and the little of vLLM that it sees."""

    def __init__(self, round_steps: tuple[int, ...] = (2,), sketch_every: int = 100) -> None:
        self.agent = StubAgent()
        self.estimator = AcceptanceEstimator(REQUESTS, K, torch.device("cpu"), basis=BASIS, workloads=SLOTS)
        table = self.agent.applied.table
        self.session = Session(self.estimator, Ranks(Alone()), self.agent, table, round_steps, sketch_every)
        self.facade = Facade(self.session, None, False)
        self.index: dict[str, int] = {}
        self.probabilities = torch.zeros(REQUESTS, K)

    def add(self, **requests: str) -> None:
        """Requests arrive, with their keys."""
        for name in requests:
            self.index[name] = next(slot for slot in range(REQUESTS) if slot not in self.index.values())
        self.session.add({name: key.replace("_", ":") for name, key in requests.items()}, self.index)

    def end(self, *names: str) -> None:
        """Requests are over."""
        for name in names:
            del self.index[name]

    def step(self, count: int = 1) -> None:
        """Decode steps in which every live request gets its first draft accepted and the second refused."""
        for _ in range(count):
            slots = torch.tensor(list(self.index.values()), dtype=torch.int64)
            temperature = torch.ones(REQUESTS)
            for k in range(K):
                logits = torch.randn(len(slots), VOCABULARY)
                self.facade.predict(logits, slots, torch.tensor(k), self.probabilities, temperature)
            full = torch.full((len(slots),), 2, dtype=torch.int32)
            self.facade.step(slots, full, torch.ones_like(full))

    @property
    def keys(self) -> list[str]:
        """Named slots, without `other`."""
        return [key for key in self.session._slots.keys if key is not None and not key.startswith("other")]

    def labels(self) -> dict[str, float]:
        """Labels that were handed over, by workload."""
        total: dict[str, float] = {}
        for parts in self.agent.rounds:
            for name, n in zip(parts.workloads, parts.moments.n.sum(axis=1), strict=True):
                total[name] = total.get(name, 0.0) + float(n)
        return total


def test_warm_up_teaches_nothing() -> None:
    """Requests that vLLM makes up run all kernels, but count no step, take no slot, and leave no sums behind."""
    rig = Rig()
    rig.add(_warmup_0_="default_greedy", _warmup_1_="default_greedy")
    rig.step(5)
    rig.end("_warmup_0_", "_warmup_1_")
    assert (rig.session.started, rig.session.steps, rig.keys) == (False, 0, [])
    rig.add(a="code_warm")
    rig.step(3)
    assert rig.labels() == {"code:warm": 2 * K}


def test_a_served_table_is_in_force_from_the_next_boundary_on() -> None:
    """Within a round nothing changes; a round says at which coefficients and which version it was summed."""
    rig = Rig()
    rig.add(a="code_warm", b="chat_warm")
    rig.agent.serve(4, code_warm=0.3)
    rig.step(1)
    np.testing.assert_allclose(rig.estimator.intercepts[0], -0.2, rtol=1e-6)
    rig.step(2)
    np.testing.assert_allclose(rig.estimator.intercepts[:2], [[0.3] * K, [0.0] * K], rtol=1e-6)
    rig.step(2)
    first, second = rig.agent.rounds
    assert (first.version, second.version) == (0, 4)
    np.testing.assert_allclose(first.intercepts, -0.2, rtol=1e-6)
    np.testing.assert_allclose(second.slopes[:, 0], [0.7, 0.6], rtol=1e-6)


def test_a_new_workload_is_predicted_with_its_own_row_at_once() -> None:
    """A key that the fleet knows has its row before its first draft, and nobody else's row is touched."""
    rig = Rig()
    rig.agent.serve(4, code_warm=0.3, chat_warm=0.9)
    rig.add(a="code_warm")
    rig.step(3)
    rig.add(b="chat_warm")
    np.testing.assert_allclose(rig.estimator.intercepts[:2], [[0.3] * K, [0.9] * K], rtol=1e-6)


def test_a_busy_device_defers_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """While two rounds are still on their way nothing is loaded or freed; then the longer round is handed over."""
    rig = Rig()
    rig.add(a="code_warm")
    rig.agent.serve(4, code_warm=0.3)
    with monkeypatch.context() as patched:
        patched.setattr(rig.estimator, "drain", lambda *args: False)
        rig.step(4)
    assert (rig.session.deferred, rig.session.harvest.handed) == (2, 0)
    np.testing.assert_allclose(rig.estimator.intercepts[0], -0.2, rtol=1e-6)
    assert [entry.version for entry in rig.session.journal] == [0, 0]
    rig.step(3)
    (parts,) = rig.agent.rounds
    assert (parts.steps, parts.version) == (6, 0)
    np.testing.assert_allclose(rig.estimator.intercepts[0], 0.3, rtol=1e-6)


def test_what_overflows_moves_to_a_slot_of_its_own_when_one_is_free() -> None:
    """Live requests in `other` get the slot of an idle workload at a boundary, and then teach under their own key."""
    rig = Rig(sketch_every=1)
    rig.add(a="a_warm", b="b_warm", c="c_warm", d="d_warm")
    assert rig.keys == ["a:warm", "b:warm", "c:warm"]
    rig.end("a")
    rig.step(2)
    assert rig.keys == ["a:warm", "b:warm", "c:warm"]
    rig.step(2)
    assert sorted(rig.keys) == ["b:warm", "c:warm", "d:warm"]
    rig.step(3)
    labels = rig.labels()
    assert labels["other:warm"] == 4 * K
    assert labels["d:warm"] == 2 * K
    assert not rig.session.errors


def test_an_agent_that_fails_holds_nobody_up() -> None:
    """The boundary is shared all the same, and the failure is counted."""
    rig = Rig()
    rig.add(a="code_warm")

    def fail() -> Applied:
        raise RuntimeError("the agent")

    rig.agent.boundary = fail  # type: ignore[method-assign]
    rig.step(4)
    assert rig.session.errors == {"boundary: RuntimeError": 2}
    assert [entry.step for entry in rig.session.journal] == [2, 4]


def test_closing_hands_over_the_open_round() -> None:
    """A shutdown loses no label."""
    rig = Rig(round_steps=(100,))
    rig.add(a="code_warm")
    rig.step(3)
    rig.session.close()
    rig.session.close()
    assert rig.labels() == {"code:warm": 3 * K}


def test_a_shadow_leaves_the_predictions_to_vllm() -> None:
    """Observing an engine that acts on predictions: vLLM's own are acted on, and ours are measured beside them."""
    rig = Rig()
    told: list[str] = []

    class Stock:
        def predict(self, logits: Any, idx: Any, step: Any, confidence: torch.Tensor, temperature: Any) -> None:
            told.append("predict")
            confidence[:] = 0.125

        def step(self, idx: Any, sampled: Any, rejected: Any) -> None:
            told.append("step")

    rig.facade = Facade(rig.session, Stock(), True)
    rig.add(a="code_warm")
    rig.step(3)
    assert torch.all(rig.probabilities == 0.125)
    assert told == (["predict"] * K + ["step"]) * 3
    assert rig.labels() == {"code:warm": 2 * K}


def test_drafts_that_were_never_shown_teach_nothing() -> None:
    """A speculator that does not let its logits be seen leaves no label, rather than labels at f = 0."""
    rig = Rig()
    rig.estimator.features.fill_(float("nan"))
    rig.add(a="code_warm")
    rig.facade.predict = lambda *args: None  # type: ignore[method-assign]
    rig.step(4)
    assert rig.labels() == {}


def test_request_slots_are_vllms() -> None:
    """A slot that changes hands between requests of two workloads teaches each what is its own."""
    rig = Rig()
    rig.add(a="code_warm")
    rig.step(2)
    rig.end("a")
    rig.add(b="chat_warm")
    rig.step(3)
    assert rig.index == {"b": 0}
    assert rig.labels() == {"code:warm": 2 * K, "chat:warm": 2 * K}
    assert SimpleNamespace(**rig.session.status()).steps == 5
