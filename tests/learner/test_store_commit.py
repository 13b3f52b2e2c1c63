from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.proxy import TcpProxy

from accord.learner.errors import InvalidValue
from accord.learner.store import (
    CHANGES,
    Commit,
    FenceLostError,
    Lease,
    PairKeys,
    Publication,
    Store,
    StoredState,
    StoreError,
    StoreUnavailableError,
    VersionError,
    WatermarkMovedError,
    connect,
)

PAIR = "target.draft.eagle.greedy.k5-0123abcd"
KEYS = PairKeys(PAIR)
TTL = 60_000


def dump(store: Store) -> dict[bytes, Any]:
    """Every key with its whole value."""
    client: Any = store.client
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"stream": client.xrange,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
    }
    return {key: readers[client.type(key)](key) for key in client.scan_iter()}


def publication(version: int, table: bytes = b"table", at: int = 1) -> Publication:
    """A publication with a history entry of its own."""
    return Publication(version, table, b"entry %d" % version, at)


def step(expected: str, watermark: str, *publications: Publication, body: bytes | None = b"body") -> Commit:
    """A commit from one watermark to the next."""
    version = publications[-1].version if publications else 0
    return Commit(expected, watermark, body, b"sequences", b"{}", version, publications)


@pytest.fixture
def lease(store: Store) -> Lease:
    """The lease of the pair, held by `one`."""
    taken = store.acquire(PAIR, "one", TTL)
    assert taken is not None
    return taken


def test_an_unknown_pair_has_the_empty_state(store: Store) -> None:
    """A pair that learnt nothing starts before every entry, without a body."""
    assert store.load(PAIR) == StoredState(None, "0-0", b"", b"", 0, 0)


def test_commit_writes_everything_together(store: Store, lease: Lease) -> None:
    """After a commit state, coefficients and history hold what was given, byte for byte."""
    noise = bytes(range(256))
    store.commit(lease, Commit("0-0", "5-1", noise, b"s" + noise, b"c" + noise, 3, [Publication(3, noise, noise, 77)]))
    state = store.load(PAIR)
    assert (state.body, state.watermark, state.sequences) == (noise, "5-1", b"s" + noise)
    assert (state.counters, state.version) == (b"c" + noise, 3)
    assert 0 <= store.clock_ms(PAIR) - state.committed_ms < 60_000
    published = store.coefficients(PAIR)
    assert published is not None
    assert (published.version, published.body, published.published_ms) == (3, noise, 77)
    assert published.etag.startswith('"3-')
    (entry,) = store.history(PAIR, 10)
    assert (entry.version, entry.published_ms, entry.table, entry.entry) == (3, 77, noise, noise)


def test_commit_without_body_keeps_the_body(store: Store, lease: Lease) -> None:
    """A commit that brings no body moves the watermark and leaves the stored body."""
    store.commit(lease, step("0-0", "1-0", body=b"first"))
    store.commit(lease, step("1-0", "2-0", body=None))
    assert (store.load(PAIR).body, store.load(PAIR).watermark) == (b"first", "2-0")


def test_an_empty_body_is_a_body(store: Store, lease: Lease) -> None:
    """A commit with an empty body stores an empty body."""
    store.commit(lease, step("0-0", "1-0", body=b"first"))
    store.commit(lease, step("1-0", "2-0", body=b""))
    assert store.load(PAIR).body == b""


def test_the_last_publication_is_in_force(store: Store, lease: Lease) -> None:
    """Several publications of one commit all enter the history, newest first, and the last one is served."""
    store.commit(lease, step("0-0", "1-0", publication(1, b"a"), publication(4, b"b"), publication(9, b"c")))
    published = store.coefficients(PAIR)
    assert published is not None
    assert (published.version, published.body) == (9, b"c")
    assert [item.version for item in store.history(PAIR, 10)] == [9, 4, 1]
    newest, *older = store.history(PAIR, 10)
    assert store.history(PAIR, 10, before=newest.id) == older
    assert [item.version for item in store.history(PAIR, 1, before=older[0].id)] == [1]


def test_the_etag_follows_version_and_body() -> None:
    """The same body under another version, and another body under the same version, have another etag."""
    tags = {publication(1, b"a").etag, publication(2, b"a").etag, publication(1, b"b").etag}
    assert len(tags) == 3
    assert publication(1, b"a", at=5).etag == publication(1, b"a").etag == '"1-86f7e437faa5"'


def test_trims_up_to_the_watermark(store: Store, lease: Lease) -> None:
    """A commit removes every entry up to the watermark and no later one."""
    ids = ["1-0", "1-1", "2-0", "2-1", "18446744073709551614-0"]
    for entry_id in ids:
        store.append(PAIR, entry_id.encode(), entry_id=entry_id)
    store.commit(lease, step("0-0", "1-1"))
    assert [entry_id for entry_id, _ in store.read(PAIR, "0-0", 10)] == ids[2:]
    store.commit(lease, step("1-1", "2-0"))
    assert store.backlog(PAIR, "2-0") == (2, 2)
    store.commit(lease, step("2-0", "2-18446744073709551615"))
    assert store.read(PAIR, "0-0", 10) == [(ids[-1], ids[-1].encode())]


def test_commit_without_progress_trims_nothing(store: Store, lease: Lease) -> None:
    """A commit whose watermark stays at the start keeps the whole stream."""
    store.append(PAIR, b"x")
    store.commit(lease, step("0-0", "0-0", publication(1)))
    assert store.backlog(PAIR, "0-0")[0] == 1


def test_announces_publications_only(store: Store, lease: Lease) -> None:
    """One notice a commit names the pair and the version in force, and a commit that publishes nothing is silent."""
    client: Any = store.client
    with client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANGES)
        while not channel.subscribed or channel.get_message(timeout=0.05) is not None:
            pass
        store.commit(lease, step("0-0", "1-0"))
        store.commit(lease, step("1-0", "2-0", publication(1), publication(2)))
        message = None
        while message is None:
            message = channel.get_message(timeout=5.0)
        assert message["data"] == f"{PAIR} 2".encode()
        assert channel.get_message(timeout=0.05) is None


def refused(store: Store, lease: Lease, commit: Commit, kind: type[StoreError]) -> None:
    """Asserts that the commit is refused and no key changes."""
    before = dump(store)
    with pytest.raises(kind):
        store.commit(lease, commit)
    assert dump(store) == before


def test_refusals_write_nothing(store: Store, lease: Lease) -> None:
    """Whatever a commit is refused for, every key stays as it was."""
    for entry_id in ("1-0", "2-0", "3-0"):
        store.append(PAIR, b"x", entry_id=entry_id)
    store.commit(lease, step("0-0", "1-0", publication(5)))
    refused(store, lease, step("0-0", "2-0", publication(6)), WatermarkMovedError)
    refused(store, lease, step("1-1", "2-0", publication(6)), WatermarkMovedError)
    for versions in ([5], [4], [6, 6], [7, 6], [6, 5]):
        refused(store, lease, step("1-0", "2-0", *map(publication, versions)), VersionError)
    refused(store, dataclasses.replace(lease, fence=lease.fence + 1), step("1-0", "2-0"), FenceLostError)
    refused(store, dataclasses.replace(lease, fence=0), step("1-0", "2-0"), FenceLostError)
    refused(store, dataclasses.replace(lease, owner="two"), step("1-0", "2-0"), FenceLostError)
    store.commit(lease, step("1-0", "2-0", publication(6)))


@pytest.mark.parametrize("key", [KEYS.history, KEYS.rounds, KEYS.coefficients])
def test_a_key_of_a_wrong_type_writes_nothing(store: Store, lease: Lease, key: str) -> None:
    """A key that somebody overwrote stops the commit before its first write."""
    store.client.set(key, "spoilt")
    refused(store, lease, step("0-0", "1-0", publication(1)), StoreError)


def test_nobody_commits_without_a_lease(store: Store) -> None:
    """A commit for a pair that nobody ever owned is refused."""
    refused(store, Lease(PAIR, "one", 1), step("0-0", "1-0"), FenceLostError)


def lapse(store: Store) -> None:
    """As if the time of the lease had run out."""
    store.client.hset(KEYS.lease, "expires_ms", store.clock_ms(PAIR))


def test_an_expired_owner_cannot_commit(store: Store, lease: Lease) -> None:
    """A lease that lapsed is worth nothing, even when nobody else took it."""
    lapse(store)
    refused(store, lease, step("0-0", "1-0"), FenceLostError)
    assert store.lease_holder(PAIR) is None


def test_a_fenced_owner_cannot_commit(store: Store, lease: Lease) -> None:
    """An owner that paused while another took over and worked is refused for good."""
    lapse(store)
    other = store.acquire(PAIR, "two", TTL)
    assert other is not None
    assert other.fence > lease.fence
    refused(store, lease, step("0-0", "1-0"), FenceLostError)
    store.commit(other, step("0-0", "1-0"))
    refused(store, lease, step("1-0", "2-0"), FenceLostError)


def test_a_repeated_commit_is_a_success(store: Store, lease: Lease) -> None:
    """A commit that is sent twice is applied once, and its second sending succeeds even after the lease lapsed."""
    commit = step("0-0", "1-0", publication(1), publication(2))
    store.commit(lease, commit)
    after = dump(store)
    store.commit(lease, commit)
    assert dump(store) == after
    lapse(store)
    store.commit(lease, commit)
    assert [item.version for item in store.history(PAIR, 10)] == [2, 1]


def test_an_old_commit_repeated_late_is_refused(store: Store, lease: Lease) -> None:
    """A repeat that arrives after the next commit changes nothing."""
    first = step("0-0", "1-0", publication(1))
    store.commit(lease, first)
    store.commit(lease, step("1-0", "2-0", publication(2)))
    refused(store, lease, first, WatermarkMovedError)


def test_another_commit_to_the_same_watermark_is_refused(store: Store, lease: Lease) -> None:
    """Only the very same content counts as a repeat, not the same watermark."""
    store.commit(lease, step("0-0", "1-0", body=b"a"))
    refused(store, lease, step("0-0", "1-0", body=b"b"), WatermarkMovedError)


def test_a_lost_reply_is_recovered_by_the_client(store: Store, lease: Lease, proxy: TcpProxy) -> None:
    """When the reply to a commit is lost the client sends it again, and the store reports success once."""
    with Store(connect(proxy.url)) as far:
        far.load(PAIR)
        far.commit(lease, step("0-0", "1-0", publication(1)))
        proxy.drop_replies(1)
        far.commit(lease, step("1-0", "2-0", publication(2)))
        assert proxy.dropped_replies == 1
    assert [item.version for item in store.history(PAIR, 10)] == [2, 1]
    assert store.load(PAIR).watermark == "2-0"


def test_a_commit_that_was_never_heard_of_may_have_happened(store: Store, lease: Lease, proxy: TcpProxy) -> None:
    """When every reply is lost the commit raises, is applied once, and sending it again later succeeds."""
    with Store(connect(proxy.url)) as far:
        far.commit(lease, step("0-0", "1-0", publication(1)))
        proxy.drop_replies(1000)
        commit = step("1-0", "2-0", publication(2))
        with pytest.raises(StoreUnavailableError):
            far.commit(lease, commit)
        proxy.drop_replies(0)
        store.commit(lease, commit)
        far.commit(lease, commit)
    assert store.load(PAIR).watermark in ("1-0", "2-0")
    assert [item.version for item in store.history(PAIR, 10)] == [2, 1]


def test_only_one_of_many_owners_wins_each_round(store: Store) -> None:
    """Threads that race for the lease get distinct fences, and every commit between lapses is the fence holder's."""
    won: list[Lease] = []
    done: list[int] = []
    lock = threading.Lock()

    def work(owner: str) -> None:
        for _ in range(200):
            taken = store.acquire(PAIR, owner, TTL)
            if taken is None:
                continue
            with lock:
                won.append(taken)
            version = store.load(PAIR).version + 1
            watermark = store.load(PAIR).watermark
            try:
                store.commit(taken, step(watermark, f"{taken.fence}-1", publication(version)))
                with lock:
                    done.append(version)
            except FenceLostError:
                pass
            store.release(taken)

    threads = [threading.Thread(target=work, args=(f"owner {i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fences = [item.fence for item in won]
    assert len(set(fences)) == len(fences) == max(fences)
    assert len(done) == len(set(done)) == len(won)
    assert [item.version for item in store.history(PAIR, 1000)] == list(range(len(done), 0, -1))


def test_a_stolen_lease_stops_the_old_owner_under_load(store: Store) -> None:
    """While one thread keeps stealing the lease no commit is lost or doubled."""
    stop = threading.Event()

    def steal() -> None:
        while not stop.is_set():
            lapse(store)
            store.acquire(PAIR, "thief", 1)

    thief = threading.Thread(target=steal)
    thief.start()
    applied = lost = 0
    try:
        for _ in range(300):
            state = store.load(PAIR)
            mine = store.acquire(PAIR, "owner", TTL)
            if mine is None:
                continue
            try:
                moved = step(state.watermark, f"{applied + 1}-0", publication(applied + 1))
                store.commit(mine, moved)
                applied += 1
            except FenceLostError:
                lost += 1
    finally:
        stop.set()
        thief.join()
    assert store.load(PAIR).watermark == f"{applied}-0"
    assert [item.version for item in store.history(PAIR, 1000)] == list(range(applied, 0, -1))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"watermark": "x"}, "watermark"),
        ({"watermark": "1-18446744073709551616"}, "watermark"),
        ({"watermark": "01-0"}, "watermark"),
        ({"expected_watermark": "9-0"}, "watermark"),
        ({"expected_watermark": "$"}, "expected_watermark"),
        ({"version": -1}, "version"),
        ({"version": 1 << 53}, "version"),
    ],
)
def test_a_malformed_commit_is_named(values: dict[str, Any], field: str) -> None:
    """A commit that no store could apply names its field before anything is sent."""
    good = step("0-0", "1-0")
    with pytest.raises(InvalidValue, match=rf"^{field} ="):
        dataclasses.replace(good, **values)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "commit", "repeat", "stale watermark", "old fence", "steal", "same version"]),
        st.integers(1, 3),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_sequence_of_commits_agrees_with_a_model(store: Store, steps: list[tuple[str, int]]) -> None:
    """Whatever the order of appends, commits, repeats, steals and mistakes, a simple model says what is stored."""
    store.client.flushall()
    stream: list[str] = []
    watermark, versions, body = "0-0", [0], None
    clock = 0
    mine = store.acquire(PAIR, "owner 0", TTL)
    assert mine is not None
    old = dataclasses.replace(mine, fence=0)
    last: tuple[Lease, Commit] | None = None
    for number, (kind, size) in enumerate(steps):
        if kind == "append":
            for _ in range(size):
                clock += 1
                stream.append(store.append(PAIR, b"x", entry_id=f"{clock}-0"))
            continue
        if kind == "steal":
            lapse(store)
            old, mine = mine, store.acquire(PAIR, f"owner {number}", TTL)
            assert mine is not None
            continue
        if kind == "repeat":
            if last:
                store.commit(*last)
            continue
        target = stream[min(size, len(stream)) - 1] if stream else watermark
        version = versions[-1] + size if kind != "same version" else versions[-1]
        new = Commit(watermark, target, b"body %d" % number, b"", b"", version, [publication(version)])
        if kind == "stale watermark":
            refused(
                store, mine, dataclasses.replace(new, expected_watermark="0-1", watermark="9999-0"), WatermarkMovedError
            )
        elif kind == "old fence":
            refused(store, old, new, FenceLostError)
        elif kind == "same version" and len(versions) > 1:
            refused(store, mine, new, VersionError)
        else:
            store.commit(mine, new)
            last = (mine, new)
            stream = [item for item in stream if int(item.split("-")[0]) > int(target.split("-")[0])]
            watermark, body = target, new.body
            versions.append(version)
    state = store.load(PAIR)
    assert (state.watermark, state.body, state.version) == (watermark, body, versions[-1])
    assert [entry_id for entry_id, _ in store.read(PAIR, "0-0", 1000)] == stream
    assert store.backlog(PAIR, watermark)[0] == len(stream)
    assert [item.version for item in store.history(PAIR, 1000)] == versions[:0:-1]
