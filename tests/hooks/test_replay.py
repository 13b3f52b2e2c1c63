"""The stand-in engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hooks.harness import KNOTS, PAIR, RawServer, landed
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.hooks.agent import Agent
from accord.hooks.engine import EngineSide
from accord.hooks.replay import Mix, ReplayEngine
from accord.hooks.settings import AgentSettings
from accord.learner.embedded import EmbeddedServer
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import Pair
from accord.learner.store import Store


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A small trace: twelve requests of two workloads, three at a time."""
    rng = np.random.default_rng(5)
    rows = [(step, 3 * (step // 10) + i) for step in range(40) for i in range(3)]
    step, request = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Trace(
        features=rng.normal(1.0, 2.0, (len(rows), PAIR.k)).astype(np.float32),
        accepted=rng.integers(0, PAIR.k + 1, len(rows)),
        workload=request % 2,
        workloads=("code:greedy", "chat:warm"),
        request=request,
        step=step,
        pair=PAIR,
    )


def make(trace: Trace, mix: Mix | None = None, rate: float | None = None, loop: bool = False, **values: Any) -> Any:
    """A replay engine and its agent, which was not started."""
    agent = Agent(trace.pair, AgentSettings(**{"knots": KNOTS, "round_steps": (5,), **values}))
    return ReplayEngine(EngineSide(agent), trace, mix, rate, loop), agent


def test_whole_trace(trace: Trace) -> None:
    """A trace is replayed once, step by step, and every label is observed and put."""
    player, agent = make(trace)
    assert player.run() == 40
    status = player.status()
    assert status["observed_labels"] == status["labels"]["put"] == trace.labels
    assert status["engine_errors"] == {}
    assert agent.stop(0.1) is False


def test_bounded_by_steps_and_by_stop(trace: Trace) -> None:
    """A looping replay ends after the steps asked for, or when it is told to."""
    player, _ = make(trace, loop=True)
    assert player.run(steps=95) == 95
    stop = threading.Event()
    stop.set()
    assert player.run(stop=stop) == 0


def test_looping_uses_new_requests(trace: Trace) -> None:
    """Every lap runs under new request ids, and finished requests give their rows back."""
    player, _ = make(trace, loop=True)
    player.run(steps=200)
    assert len(player._side._requests) == 0


def test_subset_of_workloads(trace: Trace) -> None:
    """An engine can carry some workloads only."""
    player, _ = make(trace, Mix(("chat:warm",)))
    player.run()
    player.close()
    assert player.status()["observed_labels"] == trace.select(["chat:warm"]).labels


def test_seeds_give_other_orders_of_the_same_rows(trace: Trace) -> None:
    """A seed replays every row once, each request in its order, at no more than the recorded concurrency."""
    orders = [Mix(seed=seed).batches(trace) for seed in (1, 2, 1)]
    for batches in orders:
        rows = np.concatenate(batches)
        assert sorted(rows.tolist()) == list(range(trace.rows))
        assert max(len(batch) for batch in batches) == 3
        for request in range(12):
            assert np.all(np.diff(rows[trace.request[rows] == request]) > 0)
        for batch in batches:
            assert len(set(trace.request[batch].tolist())) == len(batch)
    first, second, again = (np.concatenate(batches).tolist() for batches in orders)
    assert first == again != second


def test_rate(trace: Trace) -> None:
    """A paced replay takes the time that its rate asks for."""
    player, _ = make(trace, rate=200.0)
    begin = time.perf_counter()
    player.run()
    assert time.perf_counter() - begin >= 0.195
    assert set(player.measured()) == {"p50_ms", "p99_ms", "max_ms"}


def test_outages_do_not_slow_the_engine(store: Store, server: EmbeddedServer, trace: Trace) -> None:
    """Step times while Redis is cut, and while the api says nothing, stay near those of a working network."""

    def typical(rounds: int = 1200, **values: Any) -> tuple[float, float, Agent]:
        player, agent = make(trace, loop=True, queue_rounds=4, **values)
        agent.start()
        player.run(steps=rounds)
        player.close()
        measured = player.measured()
        return measured["p50_ms"], measured["p99_ms"], agent

    calm_p50, calm_p99, calm = typical(redis_url=server.url)
    assert calm.stop(20.0)
    with (
        TcpProxy("127.0.0.1", server.port) as redis,
        RawServer(lambda *_: api.ending.wait() and None) as api,
    ):
        redis.cut()
        p50, p99, agent = typical(redis_url=redis.url, api_url=api.url, engine="cut/0", local_after_s=0.0)
        redis.restore()
        assert agent.stop(30.0)
    # An engine that waited once for a network would show seconds, and one that did so every round hundreds of ms.
    assert p50 < 10.0 * calm_p50 + 1.0
    assert p99 < 20.0 * calm_p99 + 20.0
    assert agent.status()["labels"]["sent"] == agent.status()["labels"]["put"]


def lines(path: Path) -> list[dict[str, Any]]:
    """The status lines so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_process(store: Store, server: EmbeddedServer, trace: Trace, tmp_path: Path) -> None:
    """As a process it replays, tells its status line by line, and on SIGTERM sends the rest and ends with 0."""
    trace.save(tmp_path / "trace.npz")
    status = tmp_path / "status.jsonl"
    command = [sys.executable, "-m", "accord.hooks.replay", "--trace", str(tmp_path / "trace.npz"), "--loop"]
    command += ["--redis-url", server.url, "--engine", "host/7", "--rate", "500", "--status-file", str(status)]
    command += ["--local-after", "0.1", "--seed", "3", "--workload", "chat:warm"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(lambda: lines(status) and lines(status)[-1]["labels"]["sent"] > 0)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    last = lines(status)[-1]
    assert last["final"] is True
    assert last["complete"] is True
    assert last["engine"] == "host/7"
    assert last["observed_labels"] == last["labels"]["put"] == last["labels"]["sent"]
    assert landed(store, trace.pair, (0.0, 2.0, 4.0)).labels == last["labels"]["sent"]
    assert b"Traceback" not in output


def test_process_with_bad_options(tmp_path: Path) -> None:
    """What cannot be used is one clear line and exit code 2."""
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"no trace")
    command = [sys.executable, "-m", "accord.hooks.replay", "--trace", str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("accord replay: ")
    assert len(done.stderr.splitlines()) == 1


def test_other_pair() -> None:
    """A trace of another K than the agent's teaches nothing, and the errors say so."""
    pair = Pair("t", "d", PAIR.method, PAIR.draft_sampling, 2)
    rows = np.zeros(4, dtype=np.int64)
    other = Trace(np.zeros((4, 2), np.float32), rows, rows, ("a:warm",), np.arange(4), rows, pair)
    agent = Agent(PAIR, AgentSettings(knots=KNOTS))
    player = ReplayEngine(EngineSide(agent), other)
    player.run()
    assert player.status()["engine_errors"] == {"predict: ValueError": 1, "step: InvalidValue": 1}
