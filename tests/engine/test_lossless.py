"""Whatever becomes of the service, answers are those of vLLM without accord, and the decode loop does not notice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.support.engines import engine, generate, local, params
from tests.engine.support.models import make_pair
from tests.hooks.harness import RawServer, reply, serving
from tests.waiting import until
from vllm import LLM, SamplingParams

from accord.hooks.agent import Agent
from accord.hooks.settings import AgentSettings
from accord.hooks.vllm.session import Session
from accord.learner.coefficients import Coefficients, CoefficientTable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(280)]

SETTINGS = {"ACCORD_MODE": "local", "ACCORD_ROUND_STEPS": "2", "ACCORD_WORKLOADS": "9"}
LONGEST_HOLD_S = 0.25
"""Of the decode loop, by us, at one step, on a busy machine with two cores; a step takes longer here without us."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Target and draft."""
    return make_pair(tmp_path_factory.mktemp("models"))


def requests() -> list[SamplingParams]:
    """Greedy requests of three workloads."""
    return [params("code"), params("chat", tokens=9), params(None, tokens=7)]


@pytest.fixture(scope="module")
def answers(pair: tuple[Path, Path]) -> list[list[int]]:
    """What vLLM says with the plugin switched off."""
    with engine(*pair, {"ACCORD_DISABLE": "1"}) as llm:
        estimators = llm.collective_rpc(lambda worker: worker.worker.model_runner.speculator.acceptance_estimator)
        assert estimators == [None]
        return generate(llm, requests())


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path], answers: list[list[int]]) -> Iterator[LLM]:
    """The same with accord, started after the other one has ended."""
    with engine(*pair, SETTINGS) as running:
        yield running


def test_greedy_answers_are_token_identical(llm: LLM, answers: list[list[int]]) -> None:
    """With and without the plugin, greedy requests get the same tokens."""
    assert generate(llm, requests()) == answers
    session = local(llm)
    assert session.steps > 0
    assert not session.errors


def cold(session: Session, **changes: Any) -> dict[str, Any]:
    """A table for this engine as JSON would hold it, with changes that no honest service makes."""
    agent = session.agent
    assert agent is not None
    row = Coefficients.cold(agent.pair.k, agent.applied.table.basis)
    table = CoefficientTable(agent.pair.id, 5, row, {"code:greedy": row}, agent.settings.knots, 1)
    return {**json.loads(table.to_json()), **changes}


def slowly(client: Any, request: bytes) -> None:
    """Ten seconds, then nothing."""
    time.sleep(10.0)


def endless(client: Any, request: bytes) -> None:
    """A hundred megabytes."""
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n")
    for _ in range(100):
        client.sendall(b"[" * (1 << 20))


def dying(client: Any, request: bytes) -> None:
    """Half an answer."""
    client.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"schema": 1, ')


def lying(**changes: Any) -> Callable[[Session], Any]:
    """A table that differs from a good one."""
    return lambda session: serving(reply(body=json.dumps(cold(session, **changes)).encode()))


BAD_ROW = {"slopes": [0.5, -0.7, 0.0, 0.0], "intercepts": [0.0] * 3, "request_variance": 0.0}
NAN_ROW = {"slopes": [0.5, float("nan"), 0.0, 0.0], "intercepts": [0.0] * 3, "request_variance": 0.0}
SERVICES: dict[str, Callable[[Session], Any]] = {
    "slow": lambda session: slowly,
    "endless": lambda session: endless,
    "dying": lambda session: dying,
    "garbage": lambda session: serving(reply(body=b"\x00\xff" * 1000)),
    "error": lambda session: serving(reply("500 Internal Server Error", b"no")),
    "wrong-k": lying(k=4, prior={**BAD_ROW, "slopes": [0.5, 0, 0, 0], "intercepts": [0.0] * 4}, workloads={}),
    "nan": lying(prior=NAN_ROW),
    "negative-slope": lying(prior=BAD_ROW),
}


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_can_hurt(service: str, llm: LLM, answers: list[list[int]]) -> None:
    """Against a hostile API and a Redis that is not there, requests get their answers, and no step is held up."""
    session = local(llm)
    before = session.agent
    with RawServer(SERVICES[service](session)) as server:
        agent = replace_agent(session, server.url)
        try:
            until(lambda: server.requests)
            longest = timed_steps(session, lambda: check(llm, answers))
            until(lambda: service == "slow" or agent.state()[1] not in ("", "no answer yet"))
            assert agent.applied.version == 0
            assert agent.status()["state"] in ("starting", "local")
        finally:
            server.ending.set()
            session.agent = before
            agent.stop(1.0)
    assert longest < LONGEST_HOLD_S
    assert not session.errors


def test_an_absent_service_does_not_hurt(llm: LLM, answers: list[list[int]], free_port: int) -> None:
    """With nobody listening, evidence waits in the queue, and everything else goes on."""
    session = local(llm)
    before = session.agent
    agent = replace_agent(session, f"http://127.0.0.1:{free_port}")
    try:
        assert timed_steps(session, lambda: check(llm, answers)) < LONGEST_HOLD_S
        until(lambda: agent.status()["labels"]["queued"] > 0)
        assert agent.status()["labels"]["lost"] == 0
    finally:
        session.agent = before
        agent.stop(1.0)


def test_an_estimator_that_fails_is_replaced_by_none(
    llm: LLM, answers: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should our kernels ever raise, requests still get their answers, and steps are still counted."""
    facade = llm.collective_rpc(lambda worker: worker.worker.model_runner.speculator.acceptance_estimator)[0]
    session = local(llm)
    steps = session.steps

    def fail(*args: Any) -> None:
        raise RuntimeError("a kernel")

    monkeypatch.setattr(session.estimator, "predict", fail)
    try:
        check(llm, answers)
        assert facade.broken
        assert session.steps > steps
        assert session.errors.pop("predict: RuntimeError") == 1
    finally:
        facade.broken = False


def check(llm: LLM, answers: list[list[int]]) -> None:
    """Answers are what they were."""
    assert generate(llm, requests()) == answers


def replace_agent(session: Session, api_url: str) -> Agent:
    """An agent for the same engine, with this service and no Redis."""
    assert session.agent is not None
    settings = AgentSettings(
        redis_url="redis://127.0.0.1:1/0", api_url=api_url, engine="host/0", poll_wait_s=10.0, local_after_s=3600.0
    )
    agent = Agent(session.agent.pair, settings)
    agent.start()
    session.agent = agent
    return agent


def timed_steps(session: Session, work: Callable[[], None]) -> float:
    """The longest that accord held one step, of all that `work` made, seconds of this thread."""
    longest, real = 0.0, session.step

    def step() -> None:
        nonlocal longest
        began = time.perf_counter()
        real()
        longest = max(longest, time.perf_counter() - began)

    session.step = step  # type: ignore[method-assign]
    try:
        work()
    finally:
        del session.step
    assert threading.current_thread() is threading.main_thread()
    return longest
