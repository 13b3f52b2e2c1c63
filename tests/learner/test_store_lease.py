from __future__ import annotations

import dataclasses
import time

import pytest
from tests.proxy import TcpProxy

from accord.learner.errors import InvalidValue
from accord.learner.store import Lease, PairKeys, Store, connect

PAIR = "target.draft.eagle.greedy.k5-0123abcd"
TTL = 60_000


def acquired(store: Store, owner: str, ttl_ms: int = TTL) -> Lease:
    """The lease, which must be free or the owner's."""
    lease = store.acquire(PAIR, owner, ttl_ms)
    assert lease is not None
    return lease


def lapse(store: Store) -> None:
    """As if the time of the lease had run out."""
    store.client.hset(PairKeys(PAIR).lease, "expires_ms", store.clock_ms(PAIR))


def test_one_owner_at_a_time(store: Store) -> None:
    """While one owner holds the lease nobody else gets it."""
    lease = acquired(store, "one")
    assert lease == Lease(PAIR, "one", 1)
    assert store.acquire(PAIR, "two", TTL) is None
    assert store.acquire("other-pair", "two", TTL) == Lease("other-pair", "two", 1)


def test_the_holder_keeps_its_fence(store: Store) -> None:
    """Acquiring again while holding, as a repeated command does, extends the lease under the same fence."""
    lease = acquired(store, "one", 30_000)
    assert acquired(store, "one", 90_000) == lease
    info = store.lease_holder(PAIR)
    assert info is not None
    assert (info.owner, info.fence) == ("one", lease.fence)
    assert 30_000 < info.left_ms <= 90_000
    assert abs(info.expires_ms - info.left_ms - store.clock_ms(PAIR)) < 30_000


def test_the_fence_grows_after_a_lapse(store: Store) -> None:
    """Whoever takes a lapsed lease gets a higher fence, the former holder too."""
    first = acquired(store, "one")
    lapse(store)
    second = acquired(store, "one")
    lapse(store)
    third = acquired(store, "two")
    assert first.fence < second.fence < third.fence


def test_the_lease_lapses_by_itself(store: Store) -> None:
    """A lease that nobody renews becomes free when its time has passed."""
    lease = acquired(store, "one", 20)
    deadline = time.monotonic() + 10
    while store.acquire(PAIR, "two", TTL) is None:
        assert time.monotonic() < deadline
    assert not store.renew(lease, TTL)
    assert store.client.ttl(PairKeys(PAIR).lease) == -1


def test_renewing_needs_the_lease(store: Store) -> None:
    """A holder renews; a stranger, an older fence and a lapsed holder do not."""
    lease = acquired(store, "one", 1000)
    assert store.renew(lease, TTL)
    info = store.lease_holder(PAIR)
    assert info is not None
    assert info.left_ms > 1000
    assert not store.renew(dataclasses.replace(lease, owner="two"), TTL)
    assert not store.renew(dataclasses.replace(lease, fence=lease.fence + 1), TTL)
    lapse(store)
    assert not store.renew(lease, TTL)
    assert not store.renew(Lease("nobody", "one", 1), TTL)


def test_releasing_frees_at_once(store: Store) -> None:
    """A released lease is free for others, also when the release is repeated, and the fence grows on."""
    lease = acquired(store, "one")
    assert store.release(lease)
    assert store.release(lease)
    assert store.lease_holder(PAIR) is None
    assert not store.renew(lease, TTL)
    assert acquired(store, "two").fence == lease.fence + 1


def test_a_late_release_does_not_harm_the_next_owner(store: Store) -> None:
    """A former owner's release leaves the new owner's lease alone."""
    lease = acquired(store, "one")
    lapse(store)
    other = acquired(store, "two")
    assert not store.release(lease)
    assert store.renew(other, TTL)


def test_nobody_holds_a_new_pair(store: Store) -> None:
    """A pair that nobody worked on has no holder."""
    assert store.lease_holder(PAIR) is None


def test_a_lost_reply_does_not_change_the_fence(store: Store, proxy: TcpProxy) -> None:
    """An acquire whose reply was lost and that is sent again gives one fence."""
    with Store(connect(proxy.url)) as far:
        acquired(far, "one")
        assert far.release(Lease(PAIR, "one", 1))
        proxy.drop_replies(1)
        assert acquired(far, "one").fence == 2
        proxy.drop_replies(1)
        assert far.renew(Lease(PAIR, "one", 2), TTL)
        proxy.drop_replies(1)
        assert far.release(Lease(PAIR, "one", 2))
        assert proxy.dropped_replies == 3


@pytest.mark.parametrize(("owner", "ttl_ms", "field"), [("", 1, "owner"), ("a\n", 1, "owner"), ("a", 0, "ttl_ms")])
def test_malformed_leases_are_named(store: Store, owner: str, ttl_ms: int, field: str) -> None:
    """A bad owner or TTL is named."""
    with pytest.raises(InvalidValue, match=f"^{field} ="):
        store.acquire(PAIR, owner, ttl_ms)


def test_a_clock_that_goes_back_does_not_keep_a_dead_owner(store: Store) -> None:
    """A lease granted by a clock an hour ahead lasts as long as it was granted for, not an hour longer."""
    acquired(store, "dead", 300)
    hour_later = store.clock_ms(PAIR) + 3_600_000
    granted = {"granted_ms": hour_later, "expires_ms": hour_later + 300}
    store.client.hset(PairKeys(PAIR).lease, mapping=granted)
    assert store.acquire(PAIR, "two", TTL) is None
    deadline = time.monotonic() + 20
    while store.acquire(PAIR, "two", TTL) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert acquired(store, "two").fence == 2


def test_a_lease_without_the_time_of_its_grant_is_kept(store: Store) -> None:
    """A lease that an older learner took and renews is honoured."""
    acquired(store, "old")
    store.client.hdel(PairKeys(PAIR).lease, "granted_ms")
    assert store.acquire(PAIR, "two", TTL) is None


def test_a_clock_that_goes_back_does_not_keep_a_dead_learner(store: Store) -> None:
    """An announcement from an hour ahead is cut by the next one to ten times what that lasts."""
    store.client.zadd("accord:learners", {"dead": store.clock_ms(PAIR) + 3_600_000})
    store.announce("alive", 2_000)
    left = store.client.zscore("accord:learners", "dead") - store.clock_ms(PAIR)
    assert 0 < left <= 20_000
    assert store.learners() == ["alive", "dead"]
