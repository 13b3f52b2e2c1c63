"""Two tensor-parallel ranks stay alike, whatever happens to the service and to one of them."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.harness import Publisher
from tests.engine.support.engines import engine, generate, journal_of, params, session_of, status_of
from tests.engine.support.models import make_pair
from vllm import LLM

from accord.hooks.demo.stack import Stack
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store, connect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

# One position only: what counts here is steps, and a position costs an interpreted kernel.
K = 1
PAIR = Pair("target", "draft", Method.DRAFT_MODEL, DraftSampling.GREEDY, K)
STEPS = 300
SEED = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Store and API; the test itself publishes."""
    with Stack(tmp_path_factory.mktemp("stack"), learners=0) as running:
        yield running


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[LLM]:
    """An engine of two worker processes, with short rounds."""
    settings = {
        "ACCORD_REDIS_URL": stack.redis_url,
        "ACCORD_API_URL": stack.api_url,
        "ACCORD_KNOTS": "none",
        "ACCORD_ROUND_STEPS": "3",
        "ACCORD_WORKLOADS": "8",
        "ACCORD_LOCAL_AFTER_S": "2",
        "ACCORD_POLL_WAIT_S": "2",
        "ACCORD_HEARTBEAT_S": "0.5",
    }
    pair = make_pair(tmp_path_factory.mktemp("models"))
    with engine(*pair, settings, k=K, tensor_parallel=2, separate=True) as running:
        yield running


class Updates(threading.Thread):
    """Publishes other coefficients at random moments; while the store is away it only waits."""

    def __init__(self, url: str) -> None:
        super().__init__(name="updates")
        self.url = url
        self.over = threading.Event()
        self.published: list[CoefficientTable] = []

    def run(self) -> None:
        """Until told to stop."""
        rng = random.Random(SEED)
        with Store(connect(self.url, role="test")) as store:
            publisher = Publisher(store, PAIR, ())
            while not self.over.wait(rng.uniform(0.05, 0.6)):
                try:
                    levels = {"code_greedy": rng.uniform(-1, 1), "chat_warm": rng.uniform(-1, 1)}
                    self.published.append(publisher.publish(**levels))
                except Exception:  # noqa: BLE001  # a store that was killed: the next version tells whether it is back
                    publisher.version = max((table.version for table in self.published), default=0)


def hinder(worker: Any, seed: int) -> int:
    """Slows rank 1 at random, in the middle of a step and right before a boundary; returns the rank."""
    rank = int(worker.rank)
    if rank == 1:
        session, rng = session_of(worker), random.Random(seed)
        step, load = session.step, session.estimator.load

        def slow_step() -> None:
            time.sleep(rng.choice((0.0, 0.0, 0.02, 0.1)))
            step()

        def slow_load(*rows: Any) -> None:
            time.sleep(rng.choice((0.0, 0.05)))
            load(*rows)

        session.step, session.estimator.load = slow_step, slow_load
    return rank


def steps_of(worker: Any) -> tuple[int, int]:
    """Process id and steps of a rank."""
    return os.getpid(), session_of(worker).steps


def run_until(llm: LLM, steps: int, seeds: Iterator[int]) -> None:
    """Traffic of changing workloads until so many steps were made."""
    while llm.collective_rpc(steps_of)[0][1] < steps:
        seed = next(seeds)
        labels = ["code", "chat", f"tenant-{seed % 5}"]
        wanted = [params(label, tokens=60, temperature=0.7 * (at % 2), seed=seed) for at, label in enumerate(labels)]
        generate(llm, wanted[seed % 3 :][:2], seed)


def test_both_ranks_apply_the_same_at_the_same_step(llm: LLM, stack: Stack) -> None:
    """Over hundreds of steps, with one rank slowed and parts of the service killed, both report the same sequence."""
    assert stack.server is not None
    assert sorted(llm.collective_rpc(hinder, args=(SEED,))) == [0, 1]
    seeds = itertools.count()
    updates = Updates(stack.redis_url)
    updates.start()
    try:
        run_until(llm, STEPS // 3, seeds)
        stack.server.kill()
        run_until(llm, STEPS // 2, seeds)
        stack.server.start()
        stack.pin_api_port()
        stack.api.kill()
        run_until(llm, 3 * STEPS // 4, seeds)
        stack.api.start()
        run_until(llm, STEPS, seeds)
    finally:
        updates.over.set()
        updates.join()
    (pid, _), (other, _) = llm.collective_rpc(steps_of)
    assert pid != other
    first, second = llm.collective_rpc(journal_of)
    assert first == second
    assert [step for step, *_ in first] == list(range(3, 3 * len(first) + 1, 3))
    assert len(first) >= STEPS // 3
    versions = [version for _, version, *_ in first]
    states = [state for _, _, state, _ in first]
    print("versions", len(set(versions)), "states", sorted(set(states)), "digests", len({entry[3] for entry in first}))
    assert len(set(versions)) >= 10
    assert {"fleet", "local"} <= set(states)
    assert set(versions) - {0} <= {table.version for table in updates.published}
    for rank in llm.collective_rpc(status_of):
        assert rank["engine_errors"] == {}


def coefficients_of(worker: Any) -> list[float]:
    """What the kernels of this rank read."""
    values: list[float] = session_of(worker).estimator._theta.flatten().tolist()
    return values


def test_the_kernels_of_both_ranks_read_the_same(llm: LLM) -> None:
    """Not only do ranks say that they apply the same: their buffers are equal to the bit."""
    first, second = llm.collective_rpc(coefficients_of)
    assert first == second
    assert first != [*Coefficients.cold(K, CoefficientTable.cold("p", K, ()).basis).slopes] * len(first)
