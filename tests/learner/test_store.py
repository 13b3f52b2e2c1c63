from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from tests.proxy import TcpProxy

from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import InvalidValue, Reason, Refusal
from accord.learner.logs import fields_of
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import (
    PAIRS,
    PairKeys,
    PairRecord,
    Store,
    StoreCorruptError,
    StoreError,
    connect,
)
from accord.learner.wire import MAX_WIRE_BYTES, decode

PAIR = "target.draft.eagle.greedy.k5-0123abcd"
KNOTS = (0.0, 2.0, 4.0)


def pair(k: int = 5) -> Pair:
    """A pair that differs from others by K."""
    return Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, k)


def test_registers_a_pair_once(store: Store) -> None:
    """The first to register a pair fixes its knots and time, and everybody gets that record."""
    first = store.register(pair(), KNOTS)
    assert first.pair == pair()
    assert 0 <= store.clock_ms(PAIR) - first.registered_ms < 60_000
    assert store.register(pair(), ()) == first
    assert store.record(pair().id) == first
    assert store.register(pair(6), ()).knots == ()
    assert store.pairs() == {pair(k).id: store.record(pair(k).id) for k in (5, 6)}


def test_racing_registrations_agree(server: EmbeddedServer, store: Store) -> None:
    """Learners that register a pair at the same time with other knots all get one record."""
    barrier = threading.Barrier(8)
    found: list[PairRecord] = []

    def work(knots: tuple[float, ...]) -> None:
        with Store(connect(server.url)) as mine:
            mine.pairs()
            barrier.wait()
            found.append(mine.register(pair(), knots))

    threads = [threading.Thread(target=work, args=((float(i),),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [store.record(pair().id)] * 8


def test_an_unknown_pair_has_no_record(store: Store) -> None:
    """A pair that nobody registered has no record."""
    assert store.record(PAIR) is None
    assert store.pairs() == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"knots": [0]}',
        json.dumps({"pair": pair().to_dict(), "knots": [2, 1]}).encode(),
        json.dumps({"pair": pair().to_dict(), "knots": ["x"]}).encode(),
        json.dumps({"pair": pair().to_dict(), "knots": [10**400]}).encode(),
        json.dumps({"pair": pair(6).to_dict(), "knots": []}).encode(),
        json.dumps({"pair": pair().to_dict(), "knots": [], "registered_ms": "now"}).encode(),
    ],
)
def test_a_corrupt_record_is_left_out(store: Store, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A record that cannot be read is logged once and does not hide the others, and asking for it raises."""
    good = store.register(pair(7), KNOTS)
    store.client.hset(PAIRS, pair().id, body)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert store.pairs() == {pair(7).id: good}
    assert [fields_of(record)["pair"] for record in caplog.records] == [pair().id]
    with pytest.raises(StoreCorruptError):
        store.record(pair().id)
    with pytest.raises(StoreCorruptError):
        store.register(pair(), KNOTS)


def test_reads_after_an_id(store: Store) -> None:
    """Entries come oldest first, strictly after the given id, at most so many."""
    ids = [store.append(PAIR, b"%d" % i) for i in range(5)]
    assert store.read(PAIR, "0-0", 100) == [(entry_id, b"%d" % i) for i, entry_id in enumerate(ids)]
    assert store.read(PAIR, ids[1], 2) == [(ids[2], b"2"), (ids[3], b"3")]
    assert store.read(PAIR, ids[-1], 100) == []
    assert store.read("nobody", "0-0", 100) == []


def test_reads_before_a_time(store: Store) -> None:
    """Asked for entries before a time, a reading ends with the last id of the millisecond before it."""
    ids = ["1000-0", "1249-7", "1250-0", "1250-1"]
    for entry_id in ids:
        store.append(PAIR, b"x", entry_id=entry_id)
    assert [found for found, _ in store.read(PAIR, "0-0", 100, before_ms=1250)] == ids[:2]
    assert [found for found, _ in store.read(PAIR, "1249-7", 100, before_ms=1251)] == ids[2:]
    assert store.read(PAIR, "1249-7", 100, before_ms=1250) == []


def test_entry_ids_carry_the_pairs_clock(store: Store) -> None:
    """The milliseconds of a new entry lie between two readings of the pair's clock."""
    before = store.clock_ms(PAIR)
    entry_id = store.append(PAIR, b"x")
    assert before <= int(entry_id.split("-")[0]) <= store.clock_ms(PAIR)


def test_the_clock_does_not_go_back(store: Store) -> None:
    """Successive readings of the clock never fall."""
    readings = [store.clock_ms(PAIR) for _ in range(200)]
    assert readings == sorted(readings)


def test_an_entry_without_payload_is_empty(store: Store) -> None:
    """A foreign entry yields no bytes instead of stopping the reader."""
    store.client.xadd(PairKeys(PAIR).rounds, {"other": "x"})
    store.append(PAIR, b"x")
    assert [payload for _, payload in store.read(PAIR, "0-0", 10)] == [b"", b"x"]


def test_a_reading_is_bounded(store: Store) -> None:
    """Of a payload longer than a summary can be only the length is read, and a reading ends after so many bytes."""
    long = bytes(MAX_WIRE_BYTES + 1)
    ids = [store.append(PAIR, payload) for payload in (b"a" * 600, long, b"b" * 600, b"c" * 600)]
    store.client.xadd(PairKeys(PAIR).rounds, {"other": long})
    whole = store.read(PAIR, "0-0", 10)
    assert [payload[:8] for _, payload in whole] == [b"a" * 8, b"\x024194305", b"b" * 8, b"c" * 8, b""]
    assert not whole.cut
    with pytest.raises(Refusal, match="4194305 bytes") as refused:
        decode(whole[1][1])
    assert refused.value.reason is Reason.SIZE
    part = store.read(PAIR, "0-0", 10, most_bytes=1_000)
    assert ([entry_id for entry_id, _ in part], part.cut) == (ids[:3], True)
    assert [entry_id for entry_id, _ in store.read(PAIR, ids[0], 10, most_bytes=1)] == ids[1:2]
    assert not store.read(PAIR, ids[-1], 10).cut


def test_a_server_that_forgot_its_scripts_reads_all_the_same(store: Store) -> None:
    """Several pairs are read in one round trip also right after the server was started."""
    for pair_id in (PAIR, "other-pair"):
        store.append(pair_id, b"x")
    store.client.script_flush()
    found = store.read_many({PAIR: "0-0", "other-pair": "0-0"}, 10)
    assert [[payload for _, payload in entries] for entries in found.values()] == [[b"x"], [b"x"]]


def test_reads_many_pairs(store: Store) -> None:
    """Reading several pairs at once gives what reading each gives, also for a pair without a stream."""
    pairs = [f"pair-{i}" for i in range(4)]
    for i, pair_id in enumerate(pairs[:3]):
        for n in range(i + 2):
            store.append(pair_id, b"%d" % n, entry_id=f"{n + 1}-0")
    after = {"pair-0": "0-0", "pair-1": "1-0", "pair-2": "2-0", "pair-3": "0-0"}
    assert store.read_many(after, 2) == {pair_id: store.read(pair_id, text, 2) for pair_id, text in after.items()}
    assert store.read_many({}, 2) == {}


def test_backlog_tells_number_and_age(store: Store) -> None:
    """The backlog counts waiting entries and gives the time of the oldest; none for an idle or unknown pair."""
    assert store.backlog(PAIR, "0-0") == (0, None)
    for entry_id in ("70-0", "80-3", "90-0"):
        store.append(PAIR, b"x", entry_id=entry_id)
    assert store.backlog(PAIR, "0-0") == (3, 70)
    assert store.backlog(PAIR, "90-0") == (0, None)


def test_a_stream_is_bounded(store: Store) -> None:
    """Without a learner the oldest entries are dropped, and the newest always stay."""
    for i in range(1000):
        store.append(PAIR, b"x", entry_id=f"{i + 1}-0", max_entries=100)
    waiting, oldest = store.backlog(PAIR, "0-0")
    assert 100 <= waiting < 300
    assert oldest == 1000 - waiting + 1


def test_an_explicit_id_must_grow(store: Store) -> None:
    """An entry that would not come last is refused."""
    store.append(PAIR, b"x", entry_id="5-0")
    with pytest.raises(StoreError):
        store.append(PAIR, b"x", entry_id="5-0")


def test_a_lost_reply_may_append_twice(store: Store, proxy: TcpProxy) -> None:
    """The client repeats an append whose reply was lost, so the stream may hold it twice, never not at all."""
    with Store(connect(proxy.url)) as far:
        far.clock_ms(PAIR)
        proxy.drop_replies(1)
        last = far.append(PAIR, b"x")
    entries = store.read(PAIR, "0-0", 10)
    assert [payload for _, payload in entries] == [b"x", b"x"]
    assert entries[-1][0] == last


def test_engines_report_and_are_forgotten(store: Store) -> None:
    """The last status of each engine is kept until it is forgotten."""
    store.heartbeat(PAIR, "host-b:1", b"old")
    store.heartbeat(PAIR, "host-b:1", b"\x00new")
    store.heartbeat(PAIR, "host-a:1", b"{}")
    assert list(store.engines(PAIR).items()) == [("host-a:1", b"{}"), ("host-b:1", b"\x00new")]
    assert store.forget_engines(PAIR, ["host-a:1", "never seen"]) == 1
    assert store.forget_engines(PAIR, []) == 0
    assert list(store.engines(PAIR)) == ["host-b:1"]
    assert store.engines("nobody") == {}


def test_learners_come_and_go(store: Store) -> None:
    """A learner is listed from its announcement until it retires."""
    store.announce("b", 60_000)
    store.announce("a", 60_000)
    assert store.learners() == ["a", "b"]
    store.retire("b")
    store.retire("never seen")
    assert store.learners() == ["a"]


def test_lapsed_learners_are_pruned(store: Store) -> None:
    """A learner whose announcement lapsed is not listed, and the next announcement removes it."""
    store.announce("a", 60_000)
    store.client.zadd("accord:learners", {"a": store.clock_ms(PAIR)})
    assert store.learners() == []
    store.announce("b", 60_000)
    assert store.client.zcard("accord:learners") == 1


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ("state", {"watermark": "soon"}),
        ("state", {"watermark": b"\xff"}),
        ("state", {"version": "x"}),
        ("state", {"committed_ms": ""}),
        ("coefficients", {"version": "1", "etag": "x"}),
        ("coefficients", {"version": "1", "body": "x"}),
        ("coefficients", {"version": "one", "body": "x", "etag": "x"}),
    ],
)
def test_a_corrupt_value_is_named(store: Store, fields: str, values: dict[Any, Any]) -> None:
    """A stored value that accord never writes raises an error that says what is wrong."""
    store.client.hset(f"accord:{{{PAIR}}}:{fields}", mapping=values)
    with pytest.raises(StoreCorruptError):
        store.load(PAIR) if fields == "state" else store.coefficients(PAIR)


def test_a_key_of_a_wrong_type_is_a_store_error(store: Store) -> None:
    """What Redis refuses for good is a StoreError, which is not an outage."""
    store.client.set(PairKeys(PAIR).state, "x")
    with pytest.raises(StoreError, match="WRONGTYPE") as caught:
        store.load(PAIR)
    assert type(caught.value) is StoreError


def test_a_corrupt_history_entry_is_named(store: Store) -> None:
    """A history entry with a version that is no number raises."""
    store.client.xadd(PairKeys(PAIR).history, {"version": "x"})
    with pytest.raises(StoreCorruptError, match="version"):
        store.history(PAIR, 1)


def test_nothing_is_published_at_first(store: Store) -> None:
    """A new pair has neither coefficients nor history."""
    assert store.coefficients(PAIR) is None
    assert store.history(PAIR, 5) == []


def test_malformed_arguments_are_named(store: Store) -> None:
    """Every malformed argument raises with its name, and nothing is sent."""
    for bad in ("", "a:b", "{a}", "A", "a\n", "x" * 200, None, 5):
        with pytest.raises(InvalidValue, match=r"^pair ="):
            store.load(bad)  # type: ignore[arg-type]
    for bad in ("", "0", "-", "+", "(1-0", "1-0\n", "1-x"):
        with pytest.raises(InvalidValue, match=r"^after ="):
            store.read(PAIR, bad, 1)
        with pytest.raises(InvalidValue, match=r"^entry_id ="):
            store.append(PAIR, b"x", entry_id=bad)
    for count in (0, -1, True, 1.5):
        with pytest.raises(InvalidValue, match=r"^count ="):
            store.read(PAIR, "0-0", count)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=r"^count ="):
            store.read_many({PAIR: "0-0"}, count)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"^before ="):
        store.history(PAIR, 1, before="now")
    with pytest.raises(InvalidValue, match=r"^engine ="):
        store.heartbeat(PAIR, "", b"")
    with pytest.raises(InvalidValue, match=r"^learner ="):
        store.announce("a\x00", 1)
    with pytest.raises(InvalidValue, match=r"^ttl_ms ="):
        store.announce("a", 0)
    with pytest.raises(InvalidValue, match=r"^knots ="):
        store.register(pair(), (2.0, 1.0))
    assert store.client.dbsize() == 0
