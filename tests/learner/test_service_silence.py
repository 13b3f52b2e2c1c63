"""A learner whose store says nothing, or came back older than it was."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.service.membership import Membership
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import PairKeys, Store, StoreUnavailableError, connect

PAIR = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)
KNOTS = (0.0, 2.0)


def test_sigterm_before_a_silent_store(tmp_path: Path) -> None:
    """A learner ends in order while its store stands still, well before the client stops to try."""
    with EmbeddedServer(tmp_path / "store") as server, Store(connect(server.url)) as store:
        store.register(PAIR, KNOTS)
        environment = {"ACCORD_REDIS_URL": server.url}
        learner = Child("learner", [sys.executable, "-m", "accord.learner"], tmp_path / "log", environment=environment)
        learner.start()
        try:
            until(lambda: store.lease_holder(PAIR.id))
            assert server._child is not None
            server._child.signal(signal.SIGSTOP)
            begin = time.monotonic()
            learner.signal(signal.SIGTERM)
            assert learner.wait(60.0) == 0, learner.tail()
            took = time.monotonic() - begin
        finally:
            server._child.signal(signal.SIGCONT)
            learner.kill()
    assert took < 10.0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("kind", ["standalone", "cluster"])
def test_hanging_up_ends_a_wait(tmp_path: Path, free_port: int, kind: str) -> None:
    """A command that waits for a silent server fails when told to, on one server and on a Cluster."""
    options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port)] if kind == "cluster" else []
    with EmbeddedServer(tmp_path, options=options) as server:
        url = server.url
        if kind == "cluster":
            with Store(connect(server.url)) as admin:
                admin.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                until(lambda: b"cluster_state:ok" in admin.client.execute_command("CLUSTER", "INFO"))
            url = f"redis+cluster://127.0.0.1:{server.port}"
        with Store(connect(url, socket_timeout=120.0)) as store:
            store.register(PAIR, KNOTS)
            failure = waits_until_hung_up(store, server)
    assert isinstance(failure, StoreUnavailableError)


def waits_until_hung_up(store: Store, server: EmbeddedServer) -> Exception | None:
    """Asks a frozen server, hangs up until that fails, and returns how it failed."""
    failures: list[Exception] = []

    def ask() -> None:
        try:
            store.load(PAIR.id)
        except StoreUnavailableError as error:
            failures.append(error)

    assert server._child is not None
    server._child.signal(signal.SIGSTOP)
    thread = threading.Thread(target=ask)
    try:
        thread.start()
        deadline = time.monotonic() + 60.0
        while thread.is_alive() and time.monotonic() < deadline:
            store.hang_up()
            thread.join(0.05)
    finally:
        server._child.signal(signal.SIGCONT)
        thread.join()
    return failures[0] if failures else None


def test_a_store_that_came_back_older_is_noticed(store: Store) -> None:
    """A learner that loads a state from before its own last commit counts that, and its next commit keeps the count."""
    store.register(PAIR, KNOTS)
    store.append(PAIR.id, b"x", entry_id="1000-0")
    member = Membership(store, LearnerSettings(learner_id="one"))
    member.rebalance()
    owner = member.owners[PAIR.id]
    owner.step(store.read(PAIR.id, "0-0", 10), 5_000, 10)
    older = store.client.hgetall(PairKeys(PAIR.id).state)
    store.append(PAIR.id, b"y", entry_id="6000-0")
    owner.step(store.read(PAIR.id, "1000-0", 10), 9_000, 10)
    member.drop_all("the store is away")
    member.rebalance()
    assert member.owners[PAIR.id].learner.counters.rewinds == 0
    member.drop_all("the store is away")
    store.client.hset(PairKeys(PAIR.id).state, mapping=older)
    member.rebalance()
    owner = member.owners[PAIR.id]
    assert (owner.watermark, owner.learner.counters.rewinds) == ("1000-0", 1)
    store.append(PAIR.id, b"z", entry_id="10000-0")
    owner.step(store.read(PAIR.id, "1000-0", 10), 12_000, 10)
    assert Counters.decode(store.load(PAIR.id).counters).rewinds == 1
    member.leave()
