"""The publisher against a real server, over a network that fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.hooks.harness import IDENTITY, KNOTS, PAIR, RawServer, landed, parts
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.hooks import publisher as module
from accord.hooks.outbox import Outbox
from accord.hooks.publisher import Publisher
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import PAIRS, PairKeys, Store, connect


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.2)


@contextmanager
def publishing(url: str, limit: int = 8, heartbeat_s: float = 0.1) -> Iterator[tuple[Publisher, Outbox]]:
    """A publisher that runs, and must end when told to."""
    outbox = Outbox(IDENTITY, limit)
    publisher = Publisher(PAIR, KNOTS, outbox, url, IDENTITY.engine, lambda: {"n": 1}, heartbeat_s)
    publisher.start()
    try:
        yield publisher, outbox
    finally:
        publisher.stop(5.0)
        assert not any(thread.name == "accord-publisher" for thread in threading.enumerate())


def put(outbox: Outbox, count: int) -> int:
    """Puts rounds; returns their labels."""
    rounds = [parts(seed) for seed in range(count)]
    for item in rounds:
        outbox.put(item)
    return sum(item.labels for item in rounds)


def test_constructing_opens_no_socket(free_port: int) -> None:
    """A publisher for a server that is not there can be made, and stopped without ever being started."""
    outbox = Outbox(IDENTITY, 2)
    publisher = Publisher(PAIR, KNOTS, outbox, f"redis://127.0.0.1:{free_port}/0", "host/0", dict)
    assert publisher.stop(1.0)


def test_rounds_land_in_order(store: Store, server: EmbeddedServer) -> None:
    """Everything put lands once, in order, and the pair is registered before."""
    with publishing(server.url) as (publisher, outbox):
        labels = put(outbox, 5)
        assert publisher.flush(20.0)
    record = store.record(PAIR.id)
    assert record is not None
    assert record.knots == KNOTS
    found = landed(store)
    assert (found.labels, found.rounds, found.duplicates) == (labels, 5, 0)


def test_heartbeats(store: Store, server: EmbeddedServer) -> None:
    """The status is renewed while nothing is sent, and the last one says that the engine stopped."""

    def last() -> dict[str, Any]:
        status: dict[str, Any] = json.loads(store.engines(PAIR.id).get("host/0", b"{}"))
        return status

    with publishing(server.url):
        until(lambda: last() == {"n": 1, "stopped": False})
        store.client.delete(PairKeys(PAIR.id).engines)
        until(lambda: last() == {"n": 1, "stopped": False})
    assert last() == {"n": 1, "stopped": True}


def test_network_cut_again_and_again(store: Store, proxy: TcpProxy) -> None:
    """Through cuts in the middle of everything, what was put equals what landed."""
    labels = 0
    with publishing(proxy.url, limit=3) as (publisher, outbox):
        for turn in range(6):
            labels += put(outbox, 7)
            proxy.cut()
            labels += put(outbox, 5)
            if turn % 2:
                until(lambda: publisher.error)
            proxy.restore()
        assert publisher.flush(20.0)
        assert outbox.status()["lost"]["rounds"] == 0
        assert outbox.status()["sent"]["labels"] == labels
    found = landed(store)
    assert (found.labels, found.rounds) == (labels, 72)


def test_reply_lost(store: Store, proxy: TcpProxy) -> None:
    """A command whose reply was lost is sent again with the same bytes: a duplicate, never an overlap."""
    with publishing(proxy.url, limit=2) as (publisher, outbox):
        labels = put(outbox, 1)
        assert publisher.flush(20.0)
        for _ in range(8):
            proxy.drop_replies()
            labels += put(outbox, 4)
            assert publisher.flush(20.0)
        assert proxy.dropped_replies >= 4
    found = landed(store)
    assert (found.labels, found.rounds) == (labels, 33)
    assert found.duplicates >= 1


def test_server_that_lost_everything(store: Store, proxy: TcpProxy) -> None:
    """A server that comes back empty is told of the pair again, and the numbers go on."""
    with publishing(proxy.url) as (publisher, outbox):
        put(outbox, 2)
        assert publisher.flush(20.0)
        proxy.cut()
        until(lambda: publisher.error)
        store.client.flushall()
        proxy.restore()
        until(lambda: store.record(PAIR.id))
        put(outbox, 1)
        assert publisher.flush(20.0)
    assert len(store.read(PAIR.id, "0-0", 10)) == 1


def test_server_out_of_memory(store: Store) -> None:
    """A server that refuses writes for now loses nothing: the rounds wait and merge."""
    with EmbeddedServer() as own, Store(connect(own.url)) as mine, publishing(own.url, limit=3) as (publisher, outbox):
        labels = put(outbox, 1)
        assert publisher.flush(20.0)
        mine.client.config_set("maxmemory", "1")
        labels += put(outbox, 9)
        until(lambda: publisher.failures >= 3)
        assert len(outbox) == 3
        mine.client.config_set("maxmemory", "0")
        assert publisher.flush(20.0)
        assert landed(mine).labels == labels


def test_other_knots(store: Store, server: EmbeddedServer) -> None:
    """A pair that is registered with other knots gets nothing sent, and the reason is there to be seen."""
    store.register(PAIR, (1.0,))
    with publishing(server.url) as (publisher, outbox):
        put(outbox, 1)
        until(lambda: "KnotsDiffer" in publisher.error)
        assert len(outbox) == 1
        store.client.delete(PAIRS)
        assert publisher.flush(20.0)


def test_what_cannot_be_encoded_is_dropped(
    store: Store, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary that cannot become bytes is counted as lost instead of blocking the rest."""
    outcomes = iter([ValueError("no")])
    real = module.encode

    def once(summary: Any) -> bytes:
        for error in outcomes:
            raise error
        return real(summary)

    monkeypatch.setattr(module, "encode", once)
    with publishing(server.url) as (publisher, outbox):
        put(outbox, 3)
        assert publisher.flush(20.0)
        assert outbox.status()["lost_reasons"] == {"encode": 1}
        assert outbox.status()["sent"]["rounds"] == 2


def test_stop_in_front_of_a_silent_server() -> None:
    """A server that accepts and says nothing cannot hold up a stop, and what was not sent is told."""
    with RawServer(lambda client, request: None) as silent:
        url = silent.url.replace("http", "redis")
        with publishing(url) as (publisher, outbox):
            put(outbox, 3)
            until(lambda: silent._clients)
            begin = time.monotonic()
            assert not publisher.stop(0.2)
            assert time.monotonic() - begin < 3.0
            assert outbox.status()["queued"]["rounds"] == 3


def test_store_that_raises_anything() -> None:
    """The thread outlives whatever a library does, and goes on once it stops doing so."""

    def broken(url: str) -> Store:
        raise RuntimeError("not today")

    outbox = Outbox(IDENTITY, 2)
    publisher = Publisher(PAIR, KNOTS, outbox, "redis://h", "host/0", dict, open_store=broken)
    publisher.start()
    put(outbox, 5)
    until(lambda: publisher.failures >= 3)
    assert publisher.error == "RuntimeError: not today"
    assert not publisher.stop(0.1)
