"""Leases during a step that takes longer than they last."""

from __future__ import annotations

import threading
import time

import pytest
from tests.learner.strategies import Engine

from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import Entry, PairLearner, Published
from accord.learner.service.loop import LearnerService
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import Store, connect
from accord.learner.wire import encode

PAIR = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)


def test_a_tick_that_takes_longer_than_a_lease_is_learnt(
    server: EmbeddedServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learners that need three leases' time for a tick do not take the pair from each other for ever."""
    store.register(PAIR, (0.0, 2.0))
    store.append(PAIR.id, encode(Engine(1, pair=PAIR.id).round(5)), entry_id="1000-0")
    advance = PairLearner.advance

    def slow(self: PairLearner, entries: list[Entry], closed: int) -> list[Published]:
        if entries:
            time.sleep(1.0)
        return advance(self, entries, closed)

    monkeypatch.setattr(PairLearner, "advance", slow)
    settings = [LearnerSettings(redis_url=server.url, learner_id=name, lease_ms=300) for name in ("one", "two")]
    services = [LearnerService(item, Store(connect(server.url))) for item in settings]
    threads = [threading.Thread(target=service.run) for service in services]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and store.load(PAIR.id).watermark != "1000-0":
        time.sleep(0.05)
    for service in services:
        service.stop()
    for thread in threads:
        thread.join()
    assert Counters.decode(store.load(PAIR.id).counters).rounds == 1
