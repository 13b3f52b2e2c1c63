from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, Engine

from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import InvalidValue, Refusal
from accord.learner.logs import fields_of
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, Entry, PairLearner, tick_of
from accord.learner.service.loop import LearnerService
from accord.learner.service.membership import Membership
from accord.learner.service.owner import PairOwner, StateMismatchError
from accord.learner.service.settings import LearnerSettings
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Commit, FenceLostError, Lease, PairKeys, PairRecord, Retention, Store, connect
from accord.learner.wire import encode

KNOTS = (0.0, 2.0)


def pair(k: int = 3) -> Pair:
    """A pair of the engines' K."""
    return Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, k)


PAIR_ID = pair().id


def stream(seed: int, count: int = 12) -> list[Entry]:
    """Entries of two engines at random times, many of them in the same tick."""
    rng = np.random.default_rng(seed)
    engines = [Engine(seed + i, name=f"host-{i}/0", keys=KEYS[i : i + 2], pair=PAIR_ID, requests=10) for i in range(2)]
    entries, ms, seq = [], 1_000, 0
    for i in range(count):
        gap = int(rng.choice([0, 0, 30, 400, 1_500]))
        ms, seq = (ms + gap, 0) if gap else (ms, seq + 1)
        entries.append((f"{ms}-{seq}", encode(engines[i % 2].round(5))))
    return entries


def taken(store: Store, owner: str = "test") -> tuple[PairRecord, Lease]:
    """The pair, registered and leased."""
    record = store.register(pair(), KNOTS)
    lease = store.acquire(PAIR_ID, owner, 60_000)
    assert lease is not None
    return record, lease


@given(st.integers(0, 1_000), st.integers(1, 15), st.booleans())
@settings(
    max_examples=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_any_reading_and_any_interruption_gives_the_same_bytes(
    store: Store, seed: int, read_count: int, dies: bool
) -> None:
    """However few entries a read returns, and whoever goes on after each commit, what is stored is the same."""
    store.client.flushall()
    entries = stream(seed)
    record, lease = taken(store)
    for entry_id, body in entries:
        store.append(PAIR_ID, body, entry_id=entry_id)
    end_ms = (tick_of(entries[-1][0]) + 40) * TICK_MS
    owner = PairOwner(store, record, lease)
    for _ in range(len(entries) + 2):
        owner.step(store.read(PAIR_ID, owner.watermark, read_count), end_ms, read_count)
        if dies:
            owner = PairOwner(store, record, lease)
    whole = PairLearner(Learnt.new(PAIR_ID, 3, KNOTS))
    published = whole.advance(entries, end_ms // TICK_MS)
    stored, served = store.load(PAIR_ID), store.coefficients(PAIR_ID)
    assert stored.watermark == whole.watermark == entries[-1][0]
    assert stored.body == encode_learnt(whole.learnt)
    assert stored.sequences == whole.sequences.encode()
    assert stored.counters == whole.counters.encode()
    assert (served and served.body) == (published[-1].table.to_json() if published else None)
    assert stored.version == len(published)


def test_an_open_tick_waits(store: Store) -> None:
    """Entries of a tick that is not over by the store's clock are left for later."""
    record, lease = taken(store)
    owner = PairOwner(store, record, lease)
    entries = stream(1, 1)
    store.append(PAIR_ID, entries[0][1], entry_id="1100-0")
    found = store.read(PAIR_ID, owner.watermark, 10)
    assert owner.step(found, 1_249, 10) == 0
    assert store.load(PAIR_ID).body is None
    owner.step(found, 1_250, 10)
    assert store.load(PAIR_ID).watermark == "1100-0"


def test_an_owner_whose_lease_passed_on_cannot_commit(store: Store) -> None:
    """A learner that was thought dead and comes back is refused by the fence, and the other's work stays."""
    record, lease = taken(store, "first")
    old = PairOwner(store, record, lease)
    store.append(PAIR_ID, stream(1, 1)[0][1], entry_id="1000-0")
    store.release(lease)
    _, newer = taken(store, "second")
    entries = store.read(PAIR_ID, "0-0", 10)
    PairOwner(store, record, newer).step(entries, 10_000, 10)
    with pytest.raises(FenceLostError):
        old.step(entries, 10_000, 10)
    assert store.load(PAIR_ID).watermark == "1000-0"


def commit_body(store: Store, lease: Lease, body: bytes, sequences: bytes = b"") -> None:
    """Stores any bytes as the pair's state."""
    store.commit(lease, Commit("0-0", "1-0", body, sequences, b"", 0))


def test_a_state_that_cannot_be_understood_is_refused(store: Store) -> None:
    """Bytes that are no state, or no sequences, and the state of another basis, are typed refusals."""
    record, lease = taken(store)
    commit_body(store, lease, b"damaged")
    with pytest.raises(Refusal):
        PairOwner(store, record, lease)
    store.client.flushall()
    record, lease = taken(store)
    commit_body(store, lease, encode_learnt(Learnt.new(PAIR_ID, 3, KNOTS)), b"damaged")
    with pytest.raises(Refusal):
        PairOwner(store, record, lease)
    store.client.flushall()
    record, lease = taken(store)
    commit_body(store, lease, encode_learnt(Learnt.new(PAIR_ID, 3, ())))
    with pytest.raises(StateMismatchError):
        PairOwner(store, record, lease)


def test_a_broken_pair_does_not_stop_the_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A learner says once what it cannot learn, frees its lease, and takes the other pairs."""
    other = store.register(pair(4), KNOTS)
    _, lease = taken(store, "somebody")
    commit_body(store, lease, b"damaged")
    store.release(lease)
    member = Membership(store, LearnerSettings(learner_id="one"))
    with caplog.at_level(logging.ERROR):
        member.rebalance()
        member.rebalance()
    assert list(member.owners) == [other.pair.id]
    assert store.lease_holder(PAIR_ID) is None
    assert [r for r in caplog.records if r.levelno == logging.ERROR] == caplog.records[:1]
    member.leave()


def test_learners_share_the_pairs(store: Store) -> None:
    """A second learner gets its fair share from the first, and everything when the first leaves."""
    for k in range(3, 7):
        store.register(pair(k), KNOTS)
    first, second = (Membership(store, LearnerSettings(learner_id=name)) for name in ("first", "second"))
    first.rebalance()
    assert len(first.owners) == 4
    second.rebalance()
    first.rebalance()
    second.rebalance()
    assert (len(first.owners), len(second.owners)) == (2, 2)
    assert not set(first.owners) & set(second.owners)
    first.leave()
    second.rebalance()
    assert len(second.owners) == 4
    second.leave()


def test_a_lapsed_lease_is_dropped(store: Store) -> None:
    """A pair whose lease went to somebody else is forgotten at the next rebalance."""
    taken(store, "elsewhere")
    member = Membership(store, LearnerSettings(learner_id="one"))
    member.rebalance()
    assert member.owners == {}
    holder = store.lease_holder(PAIR_ID)
    assert holder is not None
    store.release(Lease(PAIR_ID, "elsewhere", holder.fence))
    member.rebalance()
    mine = member.owners[PAIR_ID].lease
    store.release(mine)
    assert store.acquire(PAIR_ID, "elsewhere", 60_000) is not None
    member.rebalance()
    assert member.owners == {}
    member.leave()


def test_one_cycle_learns_what_waits(server: EmbeddedServer, store: Store) -> None:
    """A cycle takes the free pair, learns the closed ticks, publishes, and asks to sleep to the next tick's end."""
    store.register(pair(), KNOTS)
    for entry_id, body in stream(2):
        store.append(PAIR_ID, body, entry_id=entry_id)
    service = LearnerService(LearnerSettings(redis_url=server.url, learner_id="one"))
    pause = service.cycle()
    assert 0.0 < pause <= 2 * TICK_MS / 1000.0
    assert store.coefficients(PAIR_ID) is not None
    assert store.load(PAIR_ID).watermark == stream(2)[-1][0]
    service.stop()
    service.run()
    assert store.lease_holder(PAIR_ID) is None
    assert store.learners() == []


def test_a_backlog_is_read_without_a_pause(server: EmbeddedServer, store: Store) -> None:
    """As long as reads come back full the next cycle follows at once, until everything is learnt."""
    store.register(pair(), KNOTS)
    entries = stream(3)
    for entry_id, body in entries:
        store.append(PAIR_ID, body, entry_id=entry_id)
    service = LearnerService(LearnerSettings(redis_url=server.url, learner_id="one", read_count=2))
    pauses = [service.cycle() for _ in range(len(entries))]
    assert pauses[0] == 0.0
    assert pauses[-1] > 0.0
    assert store.load(PAIR_ID).watermark == entries[-1][0]
    service.stop()
    service.run()


def test_settings_come_from_the_environment() -> None:
    """The environment sets URL and lease; what is unset keeps its default, and each start has an id of its own."""
    found = LearnerSettings.from_environment(
        {"ACCORD_REDIS_URL": "redis://example:1/0", "ACCORD_LEARNER_LEASE_MS": "900"}
    )
    assert (found.redis_url, found.lease_ms) == ("redis://example:1/0", 900)
    assert LearnerSettings.from_environment({}).lease_ms == LearnerSettings().lease_ms
    assert LearnerSettings().learner_id != LearnerSettings().learner_id


@pytest.mark.parametrize("value", ["fast", "-5", "1.5", "99999999999999", "1", "٣٠٠٠"])
def test_a_malformed_setting_is_named(value: str) -> None:
    """A lease that is no number of milliseconds in range is refused by name."""
    with pytest.raises(InvalidValue, match=r"^ACCORD_LEARNER_LEASE_MS = "):
        LearnerSettings.from_environment({"ACCORD_LEARNER_LEASE_MS": value})


def test_connect_is_used_as_learner(server: EmbeddedServer) -> None:
    """A service that is given a store uses that one."""
    with Store(connect(server.url, role="test")) as given:
        assert LearnerService(LearnerSettings(redis_url="redis://127.0.0.1:1/0"), given).store is given


def test_a_pair_that_cannot_be_learnt_is_set_aside(
    server: EmbeddedServer, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen fault in one pair's arithmetic is logged, its stream stays, and the other pairs are learnt."""
    bad = Pair("org/Bad", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)
    for item in (pair(), bad):
        store.register(item, KNOTS)
        store.append(item.id, encode(Engine(1, pair=item.id).round(5)), entry_id="1000-0")
    advance = PairLearner.advance

    def fails(self: PairLearner, entries: list[Entry], closed: int) -> object:
        if self.learnt.state.pair == bad.id:
            raise ZeroDivisionError
        return advance(self, entries, closed)

    monkeypatch.setattr(PairLearner, "advance", fails)
    service = LearnerService(LearnerSettings(redis_url=server.url), Store(connect(server.url)))
    with caplog.at_level(logging.ERROR):
        service.cycle()
        service.cycle()
    assert store.load(PAIR_ID).watermark == "1000-0"
    assert store.backlog(bad.id, "0-0")[0] == 1
    assert list(service.membership.owners) == [PAIR_ID]
    assert store.lease_holder(bad.id) is None
    [failed] = [record for record in caplog.records if record.getMessage() == "cannot learn"]
    assert fields_of(failed)["pair"] == bad.id
    assert failed.exc_info is not None
    assert failed.exc_info[0] is ZeroDivisionError
    service.membership.leave()
    service.store.close()


def test_ids_in_the_future_are_brought_back(server: EmbeddedServer, store: Store) -> None:
    """An entry with an id of the year 2100 holds up nothing: it and all that came behind are learnt, in order."""
    store.register(pair(), KNOTS)
    engine = Engine(1, pair=PAIR_ID)
    first, *others = [engine.round(5) for _ in range(5)]
    store.append(PAIR_ID, encode(first), entry_id="1000-0")
    store.append(PAIR_ID, encode(others[0]), entry_id="4102444800000-0")
    for summary in others[1:]:
        assert int(store.append(PAIR_ID, encode(summary)).partition("-")[0]) == 4102444800000
    service = LearnerService(LearnerSettings(redis_url=server.url), Store(connect(server.url)))
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline and Counters.decode(store.load(PAIR_ID).counters).rounds < 5:
        time.sleep(service.cycle())
    counters = Counters.decode(store.load(PAIR_ID).counters)
    assert (counters.rounds, counters.rounds_missing, counters.refused) == (5, 0, {})
    assert int(store.load(PAIR_ID).watermark.partition("-")[0]) <= store.clock_ms(PAIR_ID)
    service.membership.leave()
    service.store.close()


def test_a_long_backlog_is_learnt_within_a_short_lease(server: EmbeddedServer, store: Store) -> None:
    """A thousand ticks that wait are drained although the lease is far shorter than that takes."""
    store.register(pair(), KNOTS)
    engine = Engine(1, pair=PAIR_ID, requests=4)
    for i in range(1_000):
        store.append(PAIR_ID, encode(engine.round(1)), entry_id=f"{TICK_MS * (10 + i)}-0")
    settings = LearnerSettings(redis_url=server.url, lease_ms=400)
    service = LearnerService(settings, Store(connect(server.url)))
    thread = threading.Thread(target=service.run)
    thread.start()
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and store.backlog(PAIR_ID, "0-0")[0]:
        time.sleep(0.05)
    service.stop()
    thread.join()
    assert Counters.decode(store.load(PAIR_ID).counters).rounds == 1_000


def test_one_spoilt_key_does_not_end_the_learner(server: EmbeddedServer, store: Store) -> None:
    """A pair whose stream or lease is of a wrong type is left alone, the others are learnt."""
    spoilt = [Pair(f"org/Bad-{i}", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3) for i in range(2)]
    for item in (pair(), *spoilt):
        store.register(item, KNOTS)
    store.append(PAIR_ID, encode(Engine(1, pair=PAIR_ID).round(5)), entry_id="1000-0")
    store.client.set(PairKeys(spoilt[0].id).rounds, "x")
    store.client.set(PairKeys(spoilt[1].id).lease, "x")
    service = LearnerService(LearnerSettings(redis_url=server.url), Store(connect(server.url)))
    service.cycle()
    assert store.load(PAIR_ID).watermark == "1000-0"
    assert list(service.membership.owners) == [PAIR_ID]
    service.membership.leave()
    service.store.close()


def test_a_clock_that_went_back_hides_nothing(store: Store) -> None:
    """With a watermark ahead of the store's clock nothing is given ids of now: they would lie before it for ever."""
    record, lease = taken(store)
    engine = Engine(1, pair=PAIR_ID)
    now = store.clock_ms(PAIR_ID)
    store.append(PAIR_ID, encode(engine.round(5)), entry_id=f"{now + 60_000}-0")
    owner = PairOwner(store, record, lease)
    owner.step(store.read(PAIR_ID, "0-0", 10), now + 120_000, 10)
    assert owner.watermark == f"{now + 60_000}-0"
    later = encode(engine.round(5))
    store.append(PAIR_ID, later)
    owner.step(store.read(PAIR_ID, owner.watermark, 10), now, 10)
    assert [body for _, body in store.read(PAIR_ID, owner.watermark, 10)] == [later]


def test_more_pairs_than_fit_into_a_lease_are_taken_bit_by_bit(server: EmbeddedServer, store: Store) -> None:
    """A thousand pairs under a short lease end in one learner's hands, none of them lost on the way."""
    for i in range(1_000):
        store.register(Pair(f"org/Target-{i}", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3), KNOTS)
    membership = Membership(store, LearnerSettings(redis_url=server.url, lease_ms=1_500))
    deadline = time.monotonic() + 60.0
    while len(membership.owners) < 1_000 and time.monotonic() < deadline:
        membership.rebalance()
    assert len(membership.owners) == 1_000
    assert {owner.lease.fence for owner in membership.owners.values()} == {1}
    membership.leave()


def test_retention_is_set_by_count_and_age() -> None:
    """How much history a learner keeps comes from its environment, within bounds, in whole entries and seconds."""
    set_to = {"ACCORD_LEARNER_HISTORY_COUNT": "7", "ACCORD_LEARNER_HISTORY_AGE_S": "60"}
    assert LearnerSettings.from_environment(set_to).retention == Retention(7, 60_000)
    assert LearnerSettings.from_environment({}).retention == Retention(10_000, 90 * 86_400_000)
    for name, value in (
        ("HISTORY_COUNT", "0"),
        ("HISTORY_COUNT", "100001"),
        ("HISTORY_COUNT", "many"),
        ("HISTORY_AGE_S", "59"),
        ("HISTORY_AGE_S", "315360001"),
    ):
        with pytest.raises(InvalidValue, match=rf"^ACCORD_LEARNER_{name} = "):
            LearnerSettings.from_environment({f"ACCORD_LEARNER_{name}": value})
