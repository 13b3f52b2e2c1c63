"""Three nodes of a real Redis Cluster, three learners, two apis."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from tests.api.harness import Poll, RunningApi
from tests.bench.rounds import KNOTS, Rounds
from tests.waiting import until

from accord.api import Settings
from accord.learner.child import Child
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import PairKeys, Store, connect

PAIRS = 6
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster_url() -> Iterator[str]:
    """A cluster of three nodes, each with a third of the slots."""
    with ExitStack() as stack:
        buses = [free_port() for _ in SLOTS]
        nodes = [
            stack.enter_context(EmbeddedServer(options=["--cluster-enabled", "yes", "--cluster-port", str(bus)]))
            for bus in buses
        ]
        admins = [stack.enter_context(redis.Redis.from_url(node.url)) for node in nodes]
        for admin, slots in zip(admins, SLOTS, strict=True):
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        for node, bus in zip(nodes[1:], buses[1:], strict=True):
            admins[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        until(
            lambda: all(
                b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO")
                and admin.execute_command("CLUSTER", "NODES").count(b" connected") == len(SLOTS)
                for admin in admins
            ),
            60,
        )
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def owners(store: Store, fleets: list[Rounds]) -> list[str]:
    """Who holds each pair that is held."""
    found = [store.lease_holder(fleet.pair.id) for fleet in fleets]
    return [held.owner for held in found if held is not None]


def test_pairs_spread_over_nodes_and_learners_and_every_api_serves_all(cluster_url: str, tmp_path: Path) -> None:
    """Every round of every pair is learnt once, by learners that share the pairs and lose one; both apis serve all."""
    fleets = [Rounds(engines=2, name=f"cluster-{i}", different=10) for i in range(PAIRS)]
    environment = {"ACCORD_REDIS_URL": cluster_url, "ACCORD_LEARNER_LEASE_MS": "1500"}
    learners = [
        Child(f"learner-{i}", [sys.executable, "-m", "accord.learner"], tmp_path / f"log-{i}", environment=environment)
        for i in range(3)
    ]
    with ExitStack() as stack:
        store = stack.enter_context(Store(connect(cluster_url)))
        for fleet in fleets:
            store.register(fleet.pair, KNOTS)
        client = store.client
        assert isinstance(client, redis.RedisCluster)
        nodes = {client.get_node_from_key(PairKeys(fleet.pair.id).state).port for fleet in fleets}
        assert len(nodes) == len(SLOTS), "the pairs' hash tags should reach every node"
        for learner in learners:
            learner.start()
            stack.callback(learner.kill)
        apis = [stack.enter_context(RunningApi(Settings(redis_url=cluster_url))).ready() for _ in range(2)]
        until(lambda: sorted(map(owners(store, fleets).count, set(owners(store, fleets)))) == [2, 2, 2], 60)
        send(store, fleets, 10)
        until(lambda: learnt(store, fleets) == [10] * PAIRS, 60)
        paths = [f"/v1/pairs/{fleet.pair.id}/coefficients" for fleet in fleets]
        for path in paths:
            until(lambda path=path: apis[0].get(path).headers["accord-version"] != "0")  # type: ignore[misc]
            until(lambda path=path: apis[0].get(path).content == apis[1].get(path).content)  # type: ignore[misc]
        polls = [Poll(api, paths[0], api.get(paths[0]).headers["etag"], 50) for api in apis]
        learners[0].kill()
        send(store, fleets, 10)
        until(lambda: learnt(store, fleets) == [20] * PAIRS, 60)
        assert all(poll.result().status_code in (200, 304) for poll in polls)
        assert len(set(owners(store, fleets))) == 2


def send(store: Store, fleets: list[Rounds], count: int) -> None:
    """So many more rounds of every pair."""
    for fleet in fleets:
        for payload in fleet.take(count):
            store.append(fleet.pair.id, payload)


def learnt(store: Store, fleets: list[Rounds]) -> list[int]:
    """Rounds of each pair that were learnt."""
    return [Counters.decode(store.load(fleet.pair.id).counters).rounds for fleet in fleets]
