"""The agent: what the engine's thread sees of it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.harness import Publisher, RunningApi
from tests.hooks.harness import KNOTS, PAIR, Clock, RawServer, landed, parts, reply, serving, table
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.api import Settings
from accord.hooks import publisher as publisher_module
from accord.hooks import puller as puller_module
from accord.hooks.agent import Agent
from accord.hooks.settings import AgentSettings, Mode
from accord.hooks.standing import State
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import InvalidValue
from accord.learner.store import Store


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(publisher_module, "LONGEST_WAIT_S", 0.2)
    monkeypatch.setattr(puller_module, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(puller_module, "LONGEST_WAIT_S", 0.1)
    monkeypatch.setattr(puller_module, "PAUSE_S", 0.05)


@pytest.fixture
def api(store: Store, server: EmbeddedServer) -> Iterator[RunningApi]:
    """The real api."""
    with RunningApi(Settings(redis_url=server.url)) as running:
        yield running.ready()


@pytest.fixture
def publisher(store: Store) -> Publisher:
    """Who publishes for the pair."""
    return Publisher(store, PAIR, KNOTS)


def settings(**values: Any) -> AgentSettings:
    """Settings for the tests' pair."""
    return AgentSettings(**{"engine": "host/0", "knots": KNOTS, "heartbeat_s": 0.1, **values})


def make(clock: Clock | None = None, **values: Any) -> Agent:
    """An agent that was not started."""
    return Agent(PAIR, settings(**values), clock or Clock())


def seen(agent: Agent) -> tuple[State, int]:
    """State and version at a round boundary now."""
    applied = agent.boundary()
    return applied.state, applied.version


def test_constructing_is_harmless(free_port: int) -> None:
    """Making an agent opens no socket, starts no thread, and it already knows what is in force."""
    threads = threading.active_count()
    agent = make(redis_url=f"redis://127.0.0.1:{free_port}/0", api_url=f"http://127.0.0.1:{free_port}")
    assert threading.active_count() == threads
    assert seen(agent) == (State.STARTING, 0)
    assert agent.stop(0.1)


def test_transitions() -> None:
    """Starting, fleet, stale, local, and fleet again, with the table that belongs to each."""
    clock = Clock()
    agent = make(clock, api_url="http://127.0.0.1:9")
    assert seen(agent) == (State.STARTING, 0)
    agent.on_table(table(3))
    agent.on_answer(clock())
    assert seen(agent) == (State.FLEET, 3)
    clock.pass_by(5.0)
    agent.on_failure(clock(), clock(), "refused")
    assert seen(agent) == (State.STALE, 3)
    clock.pass_by(30.5)
    assert seen(agent) == (State.LOCAL, 3)
    assert agent._fitter is not None
    agent._fitter.offer(table(3))
    agent._fitter.tick()
    local = agent.boundary()
    assert (local.state, local.version) == (State.LOCAL, 3)
    assert local.table is agent._fitter.table
    agent.on_answer(clock())
    back = agent.boundary()
    assert (back.state, back.version, back.table.digest) == (State.FLEET, 3, table(3).digest)


def test_one_line_per_change(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line for every change of state, and none for rounds or repeated failures."""
    caplog.set_level(logging.INFO, "accord.hooks")
    clock = Clock()
    agent = make(clock, api_url="http://127.0.0.1:9")
    agent.on_answer(clock())
    for _ in range(50):
        clock.pass_by(0.1)
        agent.put(parts())
        agent.boundary()
        agent.on_failure(clock(), clock(), "refused")
        agent.status()
    assert [record.message for record in caplog.records] == [
        "accord: engine host/0 is fleet: the service answers",
        "accord: engine host/0 is stale: refused",
    ]


def test_bootstrap_until_the_service_speaks(tmp_path: Path) -> None:
    """A bootstrap table is in force until the first served one, whichever has the higher version."""
    path = tmp_path / "table.json"
    path.write_bytes(table(900).to_json())
    agent = make(api_url="http://127.0.0.1:9", bootstrap=str(path))
    assert seen(agent) == (State.STARTING, 900)
    agent.on_table(table(2))
    agent.on_answer(1000.0)
    assert seen(agent) == (State.FLEET, 2)


def test_frozen(tmp_path: Path, server: EmbeddedServer, store: Store) -> None:
    """A frozen engine keeps its table for good, polls nothing, and still sends its evidence."""
    path = tmp_path / "table.json"
    path.write_bytes(table(9).to_json())
    agent = make(redis_url=server.url, api_url="http://127.0.0.1:9", bootstrap=str(path), mode=Mode.FROZEN)
    agent.start()
    agent.put(parts())
    assert agent.stop(20.0)
    assert seen(agent) == (State.FROZEN, 9)
    assert landed(store).rounds == 1


def test_bad_bootstrap(tmp_path: Path) -> None:
    """A bootstrap file that cannot be used is named at once."""
    path = tmp_path / "table.json"
    path.write_bytes(b"{}")
    with pytest.raises(InvalidValue, match="ACCORD_BOOTSTRAP"):
        make(bootstrap=str(path))


def test_local_without_any_service() -> None:
    """With nothing configured an engine refits itself from its own rounds."""
    agent = make()
    agent.start()
    for seed in range(5):
        assert agent.put(parts(seed, requests=50))
    cold = agent.applied.table
    until(lambda: agent.boundary().table is not cold and agent.status()["local_refits"])
    assert seen(agent) == (State.LOCAL, 0)
    assert agent.status()["reason"] == "no service configured"
    agent.stop(5.0)


def test_observe(api: RunningApi, publisher: Publisher) -> None:
    """An observing engine follows the service's tables and says that it only observes."""
    agent = make(api_url=api.url, mode=Mode.OBSERVE)
    agent.start()
    publisher.publish()
    until(lambda: seen(agent) == (State.OBSERVE, 1))
    agent.stop(5.0)


def test_fleet_end_to_end(store: Store, server: EmbeddedServer, api: RunningApi, publisher: Publisher) -> None:
    """Evidence goes out, a table comes in, and the heartbeat says which one is in force."""
    agent = Agent(PAIR, settings(redis_url=server.url, api_url=api.url))
    agent.start()
    agent.put(parts(1))
    until(lambda: seen(agent) == (State.FLEET, 0))
    published = publisher.publish()
    until(lambda: seen(agent) == (State.FLEET, 1))
    until(lambda: beat(store)["digest"] == published.digest)
    status = beat(store)
    assert (status["state"], status["version"], status["nack"]) == ("fleet", 1, None)
    assert status["labels"]["put"] == status["labels"]["sent"] == parts(1).labels
    assert agent.stop(20.0)
    assert beat(store)["stopped"] is True


def beat(store: Store) -> dict[str, Any]:
    """The last heartbeat."""
    status: dict[str, Any] = json.loads(store.engines(PAIR.id).get("host/0", b'{"digest": null}'))
    return status


def test_refused_table_is_reported(store: Store, server: EmbeddedServer) -> None:
    """A table that cannot be verified leaves the last good one in force, and the heartbeat carries the reason."""
    with RawServer(serving(reply("200 OK", table(3).to_json(), 'ETag: "3"'))) as liar:
        agent = Agent(PAIR, settings(redis_url=server.url, api_url=liar.url))
        agent.start()
        until(lambda: seen(agent) == (State.FLEET, 3))
        liar.handler = serving(reply("200 OK", table(4).to_json().replace(b"[0.6,", b"[-0.6,"), 'ETag: "4"'))
        until(lambda: beat(store).get("nack"))
        assert beat(store)["nack"]["reason"] == "out_of_bounds"
        assert beat(store)["refusals"]["out_of_bounds"] >= 1
        until(lambda: seen(agent) == (State.STALE, 3))
        liar.handler = serving(reply("200 OK", table(5).to_json(), 'ETag: "5"'))
        until(lambda: seen(agent) == (State.FLEET, 5))
        until(lambda: beat(store)["nack"] is None)
        agent.stop(20.0)


def test_both_networks_cut(store: Store, server: EmbeddedServer, api: RunningApi, publisher: Publisher) -> None:
    """Through an outage of everything the engine goes local and comes back, and every label lands once."""
    publisher.publish()
    port = int(api.url.rsplit(":", 1)[1])
    with TcpProxy("127.0.0.1", server.port) as redis, TcpProxy("127.0.0.1", port) as http:
        url = f"http://127.0.0.1:{http.port}"
        agent = Agent(PAIR, settings(redis_url=redis.url, api_url=url, local_after_s=0.3, queue_rounds=4))
        agent.start()
        until(lambda: seen(agent) == (State.FLEET, 1))
        labels = 0
        for turn in range(3):
            redis.cut()
            http.cut()
            for seed in range(20):
                labels += parts(seed + 100 * turn).labels
                agent.put(parts(seed + 100 * turn))
            until(lambda: seen(agent) == (State.LOCAL, agent.applied.version))
            assert agent.status()["labels"]["queued"] > 0
            publisher.publish(code_greedy=0.1 * turn)
            redis.restore()
            http.restore()
            until(lambda want=turn + 2: seen(agent) == (State.FLEET, want))
        assert agent.stop(20.0)
        assert agent.status()["labels"]["lost"] == 0
    found = landed(store)
    assert (found.labels, found.rounds) == (labels, 60)


def test_broken_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks behind them, put and boundary return, and the errors are counted."""
    agent = make()

    def broken(*args: object) -> None:
        raise RuntimeError("broken")

    before = agent.boundary()
    for target, name in ((agent._outbox, "put"), (agent._standing, "state"), (agent._fitter, "offer")):
        monkeypatch.setattr(target, name, broken)
    assert agent.put(parts()) is False
    assert agent.boundary() == before
    assert agent._errors == {"put: RuntimeError": 1, "boundary: RuntimeError": 1}


def test_bad_parts() -> None:
    """A round that makes no sense is refused by a return value."""
    agent = make()
    assert agent.put(None) is False  # type: ignore[arg-type]
    assert agent.status()["rounds"]["lost"] == 1


def test_silent_network_costs_nothing(store: Store, server: EmbeddedServer) -> None:
    """While both servers accept and say nothing, put and boundary take no longer than while they work."""

    def rounds(agent: Agent) -> float:
        agent.start()
        worst = []
        for seed in range(150):
            item = parts(seed)
            begin = time.perf_counter()
            agent.put(item)
            agent.boundary()
            worst.append(time.perf_counter() - begin)
        return sorted(worst)[135]

    baseline = Agent(PAIR, settings(redis_url=server.url))
    normal = rounds(baseline)
    assert baseline.stop(20.0)
    with (
        RawServer(lambda client, request: None) as redis,
        RawServer(lambda client, _: http.ending.wait() and None) as http,
    ):
        agent = Agent(PAIR, settings(redis_url=redis.url.replace("http", "redis"), api_url=http.url, queue_rounds=4))
        hung = rounds(agent)
        until(lambda: http.requests and redis._clients)
        agent.stop(0.2)
    # Merging is extra work that the baseline has not; a single wait for the network would be seconds.
    assert hung < 20.0 * normal + 0.01


def test_token_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The token appears in no status and no log."""
    caplog.set_level(logging.DEBUG)
    with RawServer(serving(reply("401 Unauthorized"))) as server:
        agent = make(api_url=server.url, api_token="s3cret-token")
        agent.start()
        until(lambda: "401" in agent.status()["reason"])
        text = json.dumps(agent.status())
        agent.stop(5.0)
    assert b"s3cret-token" in server.requests[0]
    assert "s3cret-token" not in text + caplog.text
