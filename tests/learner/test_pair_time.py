"""The time of a pair whose store's clock goes back."""

from __future__ import annotations

import pytest
from tests.learner.strategies import Engine

from accord.learner.counters import Counters
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, PairLearner, tick_of
from accord.learner.service.owner import PairOwner
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Lease, PairRecord, Store, stream_id
from accord.learner.store.store import AHEAD_ENTRIES
from accord.learner.wire import encode

KNOTS = (0.0, 2.0)
PAIR = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)
HOUR_MS = 3_600_000


@pytest.fixture
def lease(store: Store) -> Lease:
    """Of a registered pair."""
    store.register(PAIR, KNOTS)
    found = store.acquire(PAIR.id, "one", 600_000)
    assert found is not None
    return found


def owner_of(store: Store, lease: Lease) -> PairOwner:
    """A fresh owner, as after a hand-over."""
    record = store.record(PAIR.id)
    assert record is not None
    return PairOwner(store, PairRecord(record.pair, record.knots, 0), lease)


def cycle(store: Store, owner: PairOwner, clock_ms: int) -> None:
    """What the loop does with a pair."""
    owner.step(store.read(PAIR.id, owner.watermark, 100), clock_ms, 100)


def test_learning_goes_on_when_the_clock_went_back(store: Store, lease: Lease) -> None:
    """After an hour's step back learning goes on at the clock's pace, and stays a function of the stream."""
    now, engine = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id)
    ahead = now + HOUR_MS
    store.append(PAIR.id, encode(engine.round(5)), entry_id=f"{ahead}-0")
    entries = store.read(PAIR.id, "0-0", 10)
    owner = owner_of(store, lease)
    cycle(store, owner, ahead + TICK_MS)
    assert owner.watermark == entries[0][0]
    for turn in range(20):
        if turn % 3 == 0 and turn < 12:
            store.append(PAIR.id, encode(engine.round(5)))
        if turn == 6:
            owner = owner_of(store, lease)
        waiting = store.read(PAIR.id, owner.watermark, 10)
        cycle(store, owner, now + turn * TICK_MS)
        learnt = stream_id("watermark", owner.watermark)
        entries += [entry for entry in waiting if stream_id("id", entry[0]) <= learnt]
    assert len({stream_id("id", entry_id)[0] // TICK_MS for entry_id, _ in entries}) >= 4
    stored = store.load(PAIR.id)
    assert Counters.decode(stored.counters).rounds == len(entries)
    fresh = PairLearner(Learnt.new(PAIR.id, PAIR.k, KNOTS))
    fresh.advance(entries, 1 << 50)
    assert stored.body == encode_learnt(fresh.learnt)


def test_a_small_step_back_splits_no_tick(store: Store, lease: Lease) -> None:
    """After less than a second, as between a primary and its replica, what came in a learnt tick moves to the next."""
    now, engine = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id)
    minute = (now + 60_000) // TICK_MS * TICK_MS
    entries = [(f"{minute}-0", encode(engine.round(5)))]
    store.append(PAIR.id, entries[0][1], entry_id=entries[0][0])
    owner = owner_of(store, lease)
    cycle(store, owner, minute + TICK_MS)
    for seq in (1, 2):
        payload = encode(engine.round(5))
        assert store.append(PAIR.id, payload) == f"{minute}-{seq}"
        entries.append((f"{minute + TICK_MS}-{seq - 1}", payload))
    for back_ms in (900, 600, 300, 0, *(-TICK_MS * turn for turn in range(1, 12))):
        cycle(store, owner, minute - back_ms)
    assert owner.watermark == entries[-1][0]
    fresh = PairLearner(Learnt.new(PAIR.id, PAIR.k, KNOTS))
    fresh.advance(entries, 1 << 50)
    assert store.load(PAIR.id).body == encode_learnt(fresh.learnt)


def test_many_late_entries_keep_their_order(store: Store, lease: Lease) -> None:
    """More than one batch of entries is given new ids, in order, and none is lost or there twice."""
    minute = store.clock_ms(PAIR.id) // TICK_MS * TICK_MS + 60_000
    for number in range(1_200):
        store.append(PAIR.id, str(number).encode(), entry_id=f"{minute}-{number}")
    last = store.move_on(lease, minute, minute + 5_000, TICK_MS, f"{minute}-9")
    found = store.read(PAIR.id, f"{minute}-9", 2_000)
    assert [body for _, body in found] == [str(number).encode() for number in range(10, 1_200)]
    places = [stream_id("id", key)[0] for key, _ in found]
    assert (min(places) - minute) // TICK_MS >= 1
    assert max(places) == last
    assert max(places.count(place) for place in places) == 200


def test_many_entries_from_the_future_are_spread_over_ticks(store: Store, lease: Lease) -> None:
    """No tick gets more than a learner can learn in one go, and none lies before the earliest place."""
    now = store.clock_ms(PAIR.id) // TICK_MS * TICK_MS
    for number in range(1_000):
        store.append(PAIR.id, str(number).encode(), entry_id=f"4102444800000-{number}")
    assert store.bring_back(lease, now + 5_000, now, now - 2 * TICK_MS, TICK_MS) == 1_000
    found = store.read(PAIR.id, "0-0", 2_000)
    assert [body for _, body in found] == [str(number).encode() for number in range(1_000)]
    assert sorted({stream_id("id", key)[0] for key, _ in found}) == [now + turn * TICK_MS for turn in range(-2, 3)]


def test_time_stands_still_when_nothing_waits(store: Store, lease: Lease) -> None:
    """A pair without traffic writes nothing while the clock is behind."""
    now, engine = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id)
    store.append(PAIR.id, encode(engine.round(5)), entry_id=f"{now + HOUR_MS}-0")
    owner = owner_of(store, lease)
    cycle(store, owner, now + HOUR_MS + 10_000)
    assert not owner.learner.learnt.due
    for turn in range(8):
        cycle(store, owner, now + turn * TICK_MS)
    assert owner.time.behind_ms >= HOUR_MS
    assert store.append(PAIR.id, b"x") == f"{now + HOUR_MS}-1"


def test_only_the_owner_moves_the_last_id(store: Store, lease: Lease) -> None:
    """Without the lease, without a stream, or towards the past nothing moves."""
    now = store.clock_ms(PAIR.id)
    assert store.move_on(lease, now, now + 1, TICK_MS) == 0
    store.append(PAIR.id, b"x", entry_id="5000-0")
    assert store.move_on(Lease(PAIR.id, "two", lease.fence), 6000, 9000, TICK_MS) == 0
    assert store.move_on(lease, 4000, 9000, TICK_MS) == 5000
    assert store.move_on(lease, 6000, 9000, TICK_MS) == 6000
    assert store.move_on(lease, 6000, 9000, TICK_MS) == 6000
    assert store.move_on(lease, 5000, 6000, TICK_MS) == 5000
    assert store.move_on(lease, 5000, 6000, TICK_MS, "5000-0") == 0
    assert [key for key, _ in store.read(PAIR.id, "0-0", 10)] == ["5000-0"]


def test_late_entries_beside_one_from_the_future_all_get_new_ids(store: Store, lease: Lease) -> None:
    """What waits behind the watermark keeps its order in ticks of its own; too many for one step stay as they are."""
    minute = store.clock_ms(PAIR.id) // TICK_MS * TICK_MS + 60_000
    for number in range(450):
        store.append(PAIR.id, str(number).encode(), entry_id=f"{minute}-{number}")
    store.append(PAIR.id, b"450", entry_id="4102444800000-0")
    last = store.move_on(lease, minute + TICK_MS, minute + 5_000, TICK_MS, f"{minute}-9")
    found = store.read(PAIR.id, "0-0", 1_000)
    assert [int(body) for _, body in found] == list(range(10, 451))
    places = [stream_id("id", key)[0] for key, _ in found]
    assert (places[0], places[-1], max(places.count(place) for place in places)) == (minute + TICK_MS, last, 200)
    for number in range(AHEAD_ENTRIES + 1 - len(found)):
        store.append(PAIR.id, b"x", entry_id=f"4102444800000-{number}")
    assert store.move_on(lease, last, last + 5_000, TICK_MS, f"{minute}-9") == 0
    assert store.read(PAIR.id, "0-0", 441) == found


def test_nothing_is_concluded_beside_entries_that_are_brought_back(store: Store, lease: Lease) -> None:
    """Many entries from the future get ids of ticks that are over by the clock; a publication that is due waits."""
    engine, base = Engine(1, pair=PAIR.id), store.clock_ms(PAIR.id) // TICK_MS * TICK_MS + 60_000
    owner, bodies = owner_of(store, lease), [encode(engine.round(steps)) for steps in (2, 300, *[2] * 450)]
    for turn in range(2):
        store.append(PAIR.id, bodies[turn], entry_id=f"{base + turn * TICK_MS}-0")
        cycle(store, owner, base + (turn + 1) * TICK_MS)
    due = owner.learner.idle_until_tick
    assert due is not None
    for number, body in enumerate(bodies[2:]):
        store.append(PAIR.id, body, entry_id=f"{base + HOUR_MS}-{number}")
    cycle(store, owner, (due + 2) * TICK_MS)
    entries = [(f"{base + turn * TICK_MS}-0", bodies[turn]) for turn in range(2)] + store.read(PAIR.id, "0-0", 2_000)
    assert [body for _, body in entries] == bodies
    assert tick_of(entries[2][0]) <= due
    for turn in range(3, 20):
        owner.step(store.read(PAIR.id, owner.watermark, 2_000), (due + turn) * TICK_MS, 2_000)
    fresh = PairLearner(Learnt.new(PAIR.id, PAIR.k, KNOTS))
    fresh.advance(entries, 1 << 50)
    assert store.load(PAIR.id).body == encode_learnt(fresh.learnt)


def test_entries_from_the_future_come_back_behind_a_moved_id(store: Store, lease: Lease) -> None:
    """With the clock behind, an id of the year 2100 is brought back to the pair's own time, not to the clock's."""
    now, engine = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id)
    store.append(PAIR.id, encode(engine.round(5)), entry_id=f"{now + HOUR_MS}-0")
    owner = owner_of(store, lease)
    cycle(store, owner, now + HOUR_MS + TICK_MS)
    store.append(PAIR.id, encode(engine.round(5)), entry_id="4102444800000-0")
    for turn in range(8):
        cycle(store, owner, now + turn * TICK_MS)
    counters = Counters.decode(store.load(PAIR.id).counters)
    assert (counters.rounds, counters.rounds_missing) == (2, 0)
    assert stream_id("watermark", owner.watermark)[0] < now + HOUR_MS + 10_000


def test_a_clock_that_jumps_to_and_fro_holds_nothing_up(store: Store, lease: Lease) -> None:
    """A clock that is behind, goes ahead by an hour and back again, with a hand-over at each step: all is learnt."""
    now, engine, rounds = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id), 1
    store.append(PAIR.id, encode(engine.round(5)), entry_id=f"{now + 24 * HOUR_MS}-0")
    owner = owner_of(store, lease)
    cycle(store, owner, now + 24 * HOUR_MS + TICK_MS)
    for jump_ms in (0, HOUR_MS, 0, 2 * HOUR_MS, 30_000, 0):
        for turn in range(8):
            if turn < 3:
                store.append(PAIR.id, encode(engine.round(5)))
                rounds += 1
            cycle(store, owner, now + jump_ms + turn * TICK_MS)
        now += 8 * TICK_MS
        owner = owner_of(store, lease)
    for turn in range(8):
        cycle(store, owner, now + turn * TICK_MS)
    assert Counters.decode(store.load(PAIR.id).counters).rounds == rounds
    assert stream_id("watermark", owner.watermark)[0] < now + 25 * HOUR_MS


def test_late_entries_beside_one_from_the_future_are_learnt(store: Store, lease: Lease) -> None:
    """Entries in a tick that was learnt, with an id of the year 2100 behind them, hold up nothing."""
    now, engine = store.clock_ms(PAIR.id), Engine(1, pair=PAIR.id)
    for entry_id in (f"{now + HOUR_MS}-0", f"{now + HOUR_MS}-1", "4102444800000-0"):
        store.append(PAIR.id, encode(engine.round(5)), entry_id=entry_id)
        if entry_id.startswith(f"{now + HOUR_MS}-0"):
            owner = owner_of(store, lease)
            cycle(store, owner, now + HOUR_MS + TICK_MS)
    for turn in range(10):
        cycle(store, owner, now + turn * TICK_MS)
    counters = Counters.decode(store.load(PAIR.id).counters)
    assert (counters.rounds, counters.rounds_missing) == (3, 0)
    assert stream_id("watermark", owner.watermark)[0] < now + HOUR_MS + 10_000


def test_no_silence_is_concluded_from_a_clock_that_is_ahead(store: Store, lease: Lease) -> None:
    """A publication that a clock an hour ahead makes due is made as of a tick that no entry can come into any more."""
    engine, base = Engine(1, pair=PAIR.id), store.clock_ms(PAIR.id) // TICK_MS * TICK_MS + 60_000
    owner = owner_of(store, lease)
    for turn, steps in enumerate((2, 300)):
        store.append(PAIR.id, encode(engine.round(steps)), entry_id=f"{base + turn * TICK_MS}-0")
        cycle(store, owner, base + (turn + 1) * TICK_MS)
    assert owner.learner.learnt.due
    entries = [(f"{base + turn * TICK_MS}-0", body) for turn, body in enumerate(sent(2, 300))]
    cycle(store, owner, base + HOUR_MS)
    assert not owner.learner.learnt.due
    store.append(PAIR.id, encode(engine.round(300)))
    entries += store.read(PAIR.id, owner.watermark, 10)
    assert stream_id("id", entries[-1][0])[0] >= owner.learner.learnt.served.published_ms
    for turn in range(2, 20):
        cycle(store, owner, base + turn * TICK_MS)
    assert owner.watermark == entries[-1][0]
    fresh = PairLearner(Learnt.new(PAIR.id, PAIR.k, KNOTS))
    fresh.advance(entries, 1 << 50)
    assert store.load(PAIR.id).body == encode_learnt(fresh.learnt)


def sent(*steps: int) -> list[bytes]:
    """What the engine of the test above sends in its first rounds."""
    engine = Engine(1, pair=PAIR.id)
    return [encode(engine.round(count)) for count in steps]
