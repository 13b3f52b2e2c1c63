"""The whole loop: a real engine, store, learner and API, each a process of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.support.engines import engine, generate, params, session_of, status_of
from tests.engine.support.models import make_pair
from vllm import LLM

from accord.hooks.demo.stack import Stack
from accord.hooks.vllm.rows import Rows
from accord.learner.coefficients import CoefficientTable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

WORKLOADS = {"code:greedy", "chat:warm", "default:sampled"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Store, learner and API."""
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A draft that is often wrong, so that there is something to learn."""
    return make_pair(tmp_path_factory.mktemp("models"), noise=0.1)


def settings(stack: Stack, **more: str) -> dict[str, str]:
    """An engine of the fleet, with short rounds."""
    return {
        "ACCORD_REDIS_URL": stack.redis_url,
        "ACCORD_API_URL": stack.api_url,
        "ACCORD_ROUND_STEPS": "3",
        "ACCORD_SKETCH_EVERY": "2",
        "ACCORD_WORKLOADS": "9",
        "ACCORD_HEARTBEAT_S": "0.3",
        "ACCORD_ENGINE": "test-host/0",
        **more,
    }


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path], stack: Stack) -> Iterator[LLM]:
    """An engine of the fleet, in a process of its own."""
    with engine(*pair, settings(stack), separate=True) as running:
        yield running


def traffic(llm: LLM, seed: int, tokens: int = 24) -> None:
    """One mixed batch of three workloads."""
    kinds: list[tuple[str | None, float]] = [("code", 0.0), ("chat", 0.7), (None, 1.0)]
    wanted = [params(label, tokens=tokens, temperature=t, seed=seed) for label, t in kinds for _ in range(2)]
    generate(llm, wanted, seed)


def served(stack: Stack, pair_id: str) -> CoefficientTable:
    """What the API serves."""
    body = httpx.get(f"{stack.api_url}/v1/pairs/{pair_id}/coefficients", trust_env=False)
    return CoefficientTable.from_json(body.content)


def theta_of(worker: Any) -> tuple[list[str | None], list[list[float]]]:
    """Slots, and what the kernels read for each."""
    session = session_of(worker)
    return list(session._slots.keys), session.estimator._theta.tolist()


def keep(llm: LLM, condition: Callable[[], bool], batches: int, first_seed: int, why: Callable[[], str]) -> None:
    """Traffic until the condition holds."""
    for seed in range(first_seed, first_seed + batches):
        if condition():
            return
        traffic(llm, seed)
    assert condition(), why()


def test_workloads_get_their_own_coefficients_and_the_engine_applies_what_is_published(llm: LLM, stack: Stack) -> None:
    """Three workloads in mixed batches are learnt apart, served, and in the kernels of the engine, to the bit."""
    pair_id = llm.collective_rpc(status_of)[0]["pair"]
    keep(llm, lambda: set(served(stack, pair_id).workloads) >= WORKLOADS, 8, 100, lambda: stack.learners[0].tail())

    def caught_up() -> bool:
        (status,) = llm.collective_rpc(status_of)
        return bool(status["version"] == served(stack, pair_id).version > 0)

    # Rounds end while there is traffic only, and every batch may move the coefficients: small ones let both meet.
    for seed in itertools.count(200):
        if caught_up() or seed > 220:
            break
        generate(llm, [params("code", tokens=12)], seed)
        time.sleep(1.2)
    (status,) = llm.collective_rpc(status_of)
    table = served(stack, pair_id)
    assert status["version"] == table.version
    assert status["digest"] == table.digest
    assert status["applied"] == "fleet"
    (slots, theta) = llm.collective_rpc(theta_of)[0]
    expected = np.concatenate([part.reshape(len(slots), -1) for part in Rows.of(table).take(slots)], axis=1)
    np.testing.assert_array_equal(np.array(theta, dtype=np.float32), expected.astype(np.float32))
    rows = [table.workloads[key].to_dict() for key in sorted(WORKLOADS)]
    assert all(ours != theirs for ours, theirs in itertools.combinations(rows, 2))
    print("version", table.version, {key: table.workloads[key].intercepts.round(2).tolist() for key in WORKLOADS})


def test_the_engine_tells_who_it_is(llm: LLM, stack: Stack) -> None:
    """Identity, state, version, digest, labels seen and rounds are in the heartbeat that the API shows."""
    pair_id = llm.collective_rpc(status_of)[0]["pair"]
    time.sleep(0.7)
    detail = httpx.get(f"{stack.api_url}/v1/pairs/{pair_id}", trust_env=False).json()
    assert detail["identity"] == {
        "target": "target",
        "draft": "draft",
        "method": "draft_model",
        "draft_sample_method": "greedy",
        "k": 3,
    }
    (seen,) = detail["engines"]
    status = seen["status"]
    assert seen["engine"] == "test-host/0"
    assert status["vllm"].startswith("0.3")
    assert (status["dp_rank"], status["tp_size"], status["adaptive_verification"]) == (0, 1, False)
    assert status["host"]
    assert status["state"] == "fleet"
    assert len(status["digest"]) == 16
    assert set(status["seen"]) >= WORKLOADS
    assert status["labels"]["lost"] == status["rounds"]["lost"] == 0
    assert status["engine_errors"] == status["errors"] == status["refusals"] == {}
    assert detail["counters"]["rounds_missing"] == 0
    print("longest boundary", status["boundary_ms"], "ms over", status["rounds_closed"], "rounds")


def test_observe_feeds_the_fleet(pair: tuple[Path, Path], stack: Stack, llm: LLM) -> None:
    """An engine that only observes, with a fixed number of drafts, teaches the same pair, and is seen as such."""
    observing = settings(stack, ACCORD_MODE="observe", ACCORD_ENGINE="watcher/0")
    with engine(*pair, observing) as watcher:
        generate(watcher, [params("log", tokens=20), params("log", tokens=20)], 1)
        (status,) = watcher.collective_rpc(status_of)
        assert status["state"] == "observe"
    deadline = time.monotonic() + 20.0
    learnt: dict[str, int] = {}
    while learnt.get("log:greedy", 0) < status["labels"]["put"] and time.monotonic() < deadline:
        detail = httpx.get(f"{stack.api_url}/v1/pairs/{status['pair']}", trust_env=False).json()
        learnt = {workload["workload"]: workload["labels"] for workload in detail["workloads"]}
        time.sleep(0.1)
    assert learnt["log:greedy"] >= status["labels"]["put"] > 0
    assert {found["engine"] for found in detail["engines"]} == {"test-host/0", "watcher/0"}
