"""A learner that is killed anywhere ends with the bytes of one that never was."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from accord.learner.child import Child
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.evaluate.trace import Trace
from accord.learner.pair_learner import Entry
from accord.learner.store import PairKeys, Store

from .stream import KNOTS, Outcome, summaries, ticks, uninterrupted

KILLS = 20
SEED = 20261129


@pytest.fixture(scope="module")
def trace() -> Trace:
    """The trace that comes with the project."""
    return Trace.bundled()


def load_stream(store: Store, pair_id: str, entries: list[Entry]) -> None:
    """Puts the whole stream there before any learner runs, with ids that lie in the past."""
    with store.client.pipeline(transaction=True) as pipe:
        for entry_id, payload in entries:
            pipe.xadd(PairKeys(pair_id).rounds, {b"d": payload}, id=entry_id)
        pipe.execute()


def kill_at_random(learner: Child, store: Store, pair_id: str, kills: int) -> set[str]:
    """Kills the learner again and again, a random moment after its first commit; the watermarks where that was."""
    rng, places = random.Random(SEED), set[str]()
    for _ in range(kills):
        before = store.load(pair_id).watermark
        learner.start()
        deadline = time.monotonic() + 20.0
        while store.load(pair_id).watermark == before and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(rng.uniform(0.0, 0.008))
        learner.kill()
        places.add(store.load(pair_id).watermark)
    return places


def finish(learner: Child, store: Store, pair_id: str, last_id: str) -> None:
    """Runs the learner until everything is learnt and published."""
    learner.start()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        stored = store.load(pair_id)
        if stored.watermark == last_id and stored.committed_ms and b'"due":false' in (stored.body or b""):
            break
        time.sleep(0.01)
    learner.stop()


def assert_same(store: Store, pair_id: str, expected: Outcome) -> None:
    """State, sequences, coefficients, history and labels are the expected ones, byte by byte."""
    stored, served = store.load(pair_id), store.coefficients(pair_id)
    history = [(entry.version, entry.table, entry.entry) for entry in store.history(pair_id, 1000)]
    assert stored.body == expected.body
    assert stored.sequences == expected.sequences
    assert served is not None
    assert served.body == expected.published[-1].table.to_json()
    assert history == [(p.table.version, p.table.to_json(), p.history) for p in reversed(expected.published)]
    assert Counters.decode(stored.counters).labels == expected.labels


@pytest.mark.parametrize("duplicates", [0.0, 0.3], ids=["plain", "duplicated"])
def test_a_learner_killed_at_random_moments_ends_with_the_bytes_of_one_that_never_was(
    server: EmbeddedServer, store: Store, trace: Trace, tmp_path: Path, duplicates: float
) -> None:
    """State, sequences, coefficients and history are identical to an uninterrupted run, duplicated XADDs or not."""
    made = summaries(trace, engines=3, rounds=120, steps=5)
    laid = ticks(made, SEED, duplicates)
    entries = [entry for batch in laid for entry in batch]
    expected = uninterrupted(trace, entries)
    assert len(expected.published) > 10
    store.register(trace.pair, KNOTS)
    load_stream(store, trace.pair.id, entries)
    environment = {"ACCORD_REDIS_URL": server.url, "ACCORD_LEARNER_READ_COUNT": "2", "ACCORD_LEARNER_LEASE_MS": "300"}
    learner = Child("learner", [sys.executable, "-m", "accord.learner"], tmp_path / "log", environment=environment)
    try:
        places = kill_at_random(learner, store, trace.pair.id, KILLS)
        finish(learner, store, trace.pair.id, entries[-1][0])
    finally:
        learner.kill()
    assert len(places) == KILLS
    assert entries[-1][0] not in places
    assert_same(store, trace.pair.id, expected)
    counted = Counters.decode(store.load(trace.pair.id).counters)
    assert counted.refused == ({"duplicate": len(entries) - len(made)} if duplicates else {})
    assert expected.labels == sum(summary.labels for summary in made)
