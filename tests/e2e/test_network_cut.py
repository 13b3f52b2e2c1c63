"""What a cut between engines and the store does: nothing is lost, and nothing is learnt twice."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.proxy import TcpProxy

from accord.hooks.agent import Agent
from accord.hooks.engine import EngineSide
from accord.hooks.replay import Mix, ReplayEngine
from accord.hooks.settings import AgentSettings
from accord.learner.child import Child
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.evaluate.trace import Trace
from accord.learner.state_codec import decode_learnt
from accord.learner.store import Store, connect

from .recorder import NO_REWRITE, recorded
from .stream import uninterrupted

ENGINES = 3
STEPS = 600
SEED = 20261129


def engines(trace: Trace, redis_url: str, queue_rounds: int) -> list[tuple[Agent, ReplayEngine]]:
    """Replay engines that send through `redis_url`, with rounds of five steps."""
    made = []
    for index in range(ENGINES):
        settings = AgentSettings(
            redis_url=redis_url, engine=f"host-{index}/0", round_steps=(5,), queue_rounds=queue_rounds, heartbeat_s=0.2
        )
        agent = Agent(trace.pair, settings)
        made.append((agent, ReplayEngine(EngineSide(agent), trace, Mix(seed=index), rate=60.0, loop=True)))
    return made


def disturb(proxy: TcpProxy, learner: Child, over: threading.Event, rng: random.Random) -> None:
    """Cuts engines off, loses replies and kills the learner at random until told to stop, and leaves all well."""
    while not over.wait(rng.uniform(0.1, 0.4)):
        what = rng.random()
        if what < 0.4:
            proxy.cut()
            over.wait(rng.uniform(0.05, 0.8))
            proxy.restore()
        elif what < 0.7:
            proxy.drop_replies(rng.randint(1, 3))
        else:
            learner.kill()
            over.wait(rng.uniform(0.0, 0.3))
            learner.start()
    proxy.restore()
    learner.start()


@pytest.mark.parametrize("queue_rounds", [10_000, 4], ids=["nothing merged", "merged"])
def test_engines_cut_off_at_random_lose_nothing_and_teach_nothing_twice(tmp_path: Path, queue_rounds: int) -> None:
    """Every label is learnt once, and the state is an uninterrupted learner's on the same stream, to the bit."""
    trace = Trace.bundled()
    with (
        EmbeddedServer(tmp_path / "store", options=NO_REWRITE) as server,
        TcpProxy("127.0.0.1", server.port) as proxy,
        Store(connect(server.url)) as store,
    ):
        environment = {"ACCORD_REDIS_URL": server.url, "ACCORD_LEARNER_LEASE_MS": "300"}
        learner = Child("learner", [sys.executable, "-m", "accord.learner"], tmp_path / "log", environment=environment)
        running = engines(trace, proxy.url, queue_rounds)
        replay(running, proxy, learner)
        entries = recorded(server.data_dir, trace.pair.id)
        wait_until_learnt(store, trace.pair.id, entries[-1][0])
        learner.stop()
        stored = store.load(trace.pair.id)

    statuses = [agent.status() for agent, _ in running]
    expected = uninterrupted(trace, entries)
    assert stored.body == expected.body
    assert stored.sequences == expected.sequences
    counters = Counters.decode(stored.counters)
    put = sum(status["labels"]["put"] for status in statuses)
    assert sum(status["labels"]["lost"] for status in statuses) == 0
    assert counters.labels == int(decode_learnt(stored.body or b"").state.labels.sum()) == put
    assert counters.rounds_missing == 0
    assert set(counters.refused) <= {"duplicate"}
    merged = sum(status["rounds"]["merged"] for status in statuses)
    assert (merged > 0) == (queue_rounds == 4)


def replay(running: list[tuple[Agent, ReplayEngine]], proxy: TcpProxy, learner: Child) -> None:
    """Runs the engines through all the trouble, until everything that they learnt has landed."""
    over = threading.Event()
    learner.start()
    trouble = threading.Thread(target=disturb, args=(proxy, learner, over, random.Random(SEED)))
    trouble.start()
    threads = [threading.Thread(target=player.run, args=(STEPS,)) for _, player in running]
    try:
        for agent, _ in running:
            agent.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        over.set()
        trouble.join()
    for agent, player in running:
        player.close()
        assert agent.stop(30.0)


def wait_until_learnt(store: Store, pair_id: str, last_id: str) -> None:
    """Waits until the stream is learnt and nothing waits to be published."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        stored = store.load(pair_id)
        if stored.watermark == last_id and b'"due":false' in (stored.body or b""):
            return
        time.sleep(0.02)
    raise AssertionError(f"not learnt in time: {store.load(pair_id).watermark} of {last_id}")
