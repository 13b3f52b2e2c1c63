from __future__ import annotations

import json

import pytest
from tests.learner.test_service import PAIR_ID, pair

from accord.learner.service.heartbeats import SWEEP_EVERY_S, Heartbeats
from accord.learner.service.membership import Membership
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import PairKeys, Store
from accord.learner.store.registry import MAX_STATUS_BYTES

KEY = PairKeys(PAIR_ID).engines


class Clock:
    """Seconds that pass when told to."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def beat(at_ms: int, **more: object) -> bytes:
    """A heartbeat."""
    return json.dumps({"time_ms": at_ms, **more}).encode()


def swept(store: Store, most: int = 100, learnt: frozenset[str] = frozenset()) -> int:
    """One sweep from beginning to end; how many it dropped."""
    clock = Clock()
    heartbeats = Heartbeats(store, PAIR_ID, most, clock)
    clock.now_s += 2.0
    dropped, slices = 0, 0
    while heartbeats.due:
        dropped += heartbeats.go_on(learnt)
        slices += 1
        assert slices < 10_000
    clock.now_s += SWEEP_EVERY_S
    assert heartbeats.due
    return dropped


def test_what_no_engine_writes_is_dropped(store: Store) -> None:
    """Silent for a day, unreadable, endless, or under a name that no engine can have: gone; others stay as they are."""
    now = store.clock_ms(PAIR_ID)
    good = {b"new/0": beat(now - 3_600_000), b"a.b:1/2_3": beat(now)}
    bad = {
        b"old/0": beat(now - 90_000_000),
        b"odd/0": b"{",
        b"deep/0": b"[" * 50_000,
        b"long/0": beat(now, text="x" * MAX_STATUS_BYTES),
        b"<b>": beat(now),
        b"\xff\xfe": beat(now),
        b"n" * 129: beat(now),
        b"": beat(now),
        b"esc\x1b[31m": beat(now),
        b"line\n": beat(now),
    }
    store.client.hset(KEY, mapping=good | bad)
    assert swept(store) == len(bad)
    assert store.client.hgetall(KEY) == good


@pytest.mark.parametrize("count", [90, 3_000])
def test_a_flood_of_names_is_cut(store: Store, count: int) -> None:
    """Of more heartbeats than fit those of engines whose summaries were learnt stay, then those heard last."""
    now = store.clock_ms(PAIR_ID)
    flood = {f"x{number}/0": beat(now + 1_000_000 + number) for number in range(count)}
    store.client.hset(KEY, mapping=flood | {f"host/{number}": beat(now - number) for number in range(20)})
    swept(store, 100, frozenset(f"host/{number}" for number in range(20)))
    left = {name.decode() for name in store.client.hkeys(KEY)}
    assert len(left) == 100
    assert {f"host/{number}" for number in range(20)} <= left
    assert f"x{count - 1}/0" in left


def test_a_spoilt_key_does_not_end_the_learner(store: Store) -> None:
    """Where heartbeats should be there is text: the learner goes on with its pairs."""
    store.register(pair(), (0.0, 2.0))
    membership = Membership(store, LearnerSettings(lease_ms=60_000))
    membership.rebalance()
    store.client.set(KEY, "text", ex=60)
    for owner in membership.owners.values():
        owner.heartbeats = Heartbeats(store, PAIR_ID, clock=Clock())
        owner.heartbeats._next_s = 0.0
    membership.rebalance()
    assert list(membership.owners) == [PAIR_ID]
    membership.leave()
