"""Whatever a store's clock does, and whenever a learner looks: the state is a function of what stood in the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError
from tests.learner.strategies import Engine, some

from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, Entry, PairLearner
from accord.learner.service.owner import PairOwner
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import (
    Commit,
    Lease,
    PairKeys,
    PairRecord,
    Retention,
    Store,
    StoreUnavailableError,
    connect,
    stream_id,
)
from accord.learner.wire import encode

KNOTS = (0.0, 2.0)
PAIR = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)
ROUNDS = PairKeys(PAIR.id).rounds
HOUR_MS = 3_600_000

Happening = tuple[str, int]
Action = Happening | tuple[str, Happening, Happening]
NOTHING: Happening = ("pass", 0)
LOOK: Action = ("look", NOTHING, NOTHING)


class Recording(Store):
    """A store that keeps what commits trim: what was learnt, under the ids it had by then.

    Attributes:
        lose: what happens to the next commit: 1 when it never arrives, 2 when only its answer is lost.
        twice: whether ids are moved twice, as when a client repeats a command whose answer was lost.
    """

    def __init__(self, url: str) -> None:
        super().__init__(connect(url, role="test"))
        self.begin()

    def begin(self) -> None:
        """An empty store, on which nothing fails."""
        self.client.flushall()
        self.learnt: list[Entry] = []
        self.lose = self.twice = 0

    def commit(self, lease: Lease, commit: Commit, retention: Retention | None = None) -> None:
        """As the store's."""
        lose, self.lose = self.lose, 0
        if lose == 1:
            raise StoreUnavailableError("lost on the way there")
        waiting = self.read(PAIR.id, "0-0", 100_000)
        super().commit(lease, commit, retention)
        mark = stream_id("watermark", commit.watermark)
        self.learnt += [entry for entry in waiting if stream_id("id", entry[0]) <= mark]
        if lose == 2:
            raise StoreUnavailableError("lost on the way back")

    def move_on(self, lease: Lease, now_ms: int, limit_ms: int, tick_ms: int, watermark: str | None = None) -> int:
        """As the store's."""
        if self.twice:
            super().move_on(lease, now_ms, limit_ms, tick_ms, watermark)
        return super().move_on(lease, now_ms, limit_ms, tick_ms, watermark)

    def bring_back(self, lease: Lease, limit_ms: int, now_ms: int, earliest_ms: int, tick_ms: int) -> int:
        """As the store's; a repeated one finds nothing to move, and says so."""
        if self.twice:
            super().bring_back(lease, limit_ms, now_ms, earliest_ms, tick_ms)
        return super().bring_back(lease, limit_ms, now_ms, earliest_ms, tick_ms)


@dataclass
class World:
    """A pair, engines that send, an owner that learns, and a clock that does what it is told.

    Attributes:
        real_ms: how late it really is; the store's clock is off_ms ahead of it.
        sent: summaries in the order in which they arrived.
    """

    store: Recording
    lease: Lease
    real_ms: int
    off_ms: int = 0
    read_count: int = 100
    budget_s: float = 1.0
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Engines of different truths, so that nearly every round moves the coefficients and makes a publication due.
        self.engines = [Engine(seed, pair=PAIR.id, name=f"host-{seed}/0", boot=f"{seed:016x}") for seed in range(5)]
        self.hand_over()

    def hand_over(self) -> None:
        """The pair goes to a learner that knows only what is stored."""
        record = self.store.record(PAIR.id)
        assert record is not None
        self.owner = PairOwner(self.store, PairRecord(record.pair, record.knots, 0), self.lease, self.budget_s)

    def arrive(self, payload: bytes) -> None:
        """A summary gets the id that Redis gives by its clock, which is never below the newest one."""
        last, clock_ms = "0-0", self.real_ms + self.off_ms
        with suppress(ResponseError):
            last = self.store.client.xinfo_stream(ROUNDS)["last-generated-id"].decode()
        ms, seq = stream_id("last", last)
        self.store.append(PAIR.id, payload, entry_id=f"{clock_ms}-0" if clock_ms > ms else f"{ms}-{seq + 1}")
        self.sent.append(payload)

    def forge(self, ms: int) -> None:
        """Somebody moves the stream's last id to where no clock has ever been."""
        with suppress(ResponseError):
            self.store.client.execute_command("XSETID", ROUNDS, f"{ms}-0")

    def do(self, happening: Happening) -> None:
        """One thing that happens."""
        name, value = happening
        if name == "arrive":
            for _ in range(value):
                self.arrive(encode(self.engines[len(self.sent) % 5].round(40)))
        elif name == "repeat":
            self.arrive(self.sent[-1]) if self.sent else None
        elif name == "forge":
            self.forge(value)
        elif name == "pass":
            self.real_ms += value
        elif name == "jump":
            self.off_ms = value
        elif name == "hand over":
            self.hand_over()
        elif name == "budget":
            self.budget_s = self.owner.budget_s = float(value)
        elif name == "read":
            self.read_count = value
        else:
            setattr(self.store, name, value)

    def look(self, between: Happening = NOTHING, before: Happening = NOTHING) -> None:
        """What the loop does with a pair: the clock, then the entries, then a step; things happen in between."""
        clock_ms = self.real_ms + self.off_ms
        self.do(between)
        self.owner.repair.next_s = 0.0
        owner, entries = self.owner, self.store.read(PAIR.id, self.owner.watermark, self.read_count)
        self.do(before)
        try:
            owner.step(entries, clock_ms, self.read_count)
        except StoreUnavailableError:
            self.hand_over()

    def settle(self) -> None:
        """The clock is right from now on, and everything is learnt within a minute."""
        self.off_ms = 0
        for _ in range(240):
            self.real_ms += TICK_MS
            self.look()
            if not self.store.read(PAIR.id, "0-0", 1) and not self.owner.learner.learnt.due:
                return
        raise AssertionError(f"{self.store.read(PAIR.id, '0-0', 3)!r:.200} still waits")

    def judge(self) -> None:
        """All was learnt once and in order, and the state is that of a learner that is given it at once."""
        assert [payload for _, payload in self.store.learnt] == self.sent
        fresh = PairLearner(Learnt.new(PAIR.id, PAIR.k, KNOTS))
        published = fresh.advance(self.store.learnt, 1 << 50)
        stored, served = self.store.load(PAIR.id), self.store.coefficients(PAIR.id)
        if not self.sent:
            assert stored.body is None
            return
        assert (stored.sequences, served is None) == (fresh.sequences.encode(), not published)
        assert served is None or served.body == published[-1].table.to_json()
        assert stored.body == encode_learnt(fresh.learnt)


@pytest.fixture(scope="module")
def recording(server: EmbeddedServer) -> Iterator[Recording]:
    """One for all examples."""
    with Recording(server.url) as running:
        yield running
        running.client.flushall()


JUMPS_MS = (0, 0, 0, HOUR_MS, 25 * HOUR_MS, -60_000, -900, 300, 30_000)
HAPPENINGS = st.one_of(
    st.tuples(st.just("arrive"), st.integers(1, 3)),
    st.tuples(st.just("pass"), st.sampled_from((1, 30, 100, 250, 700))),
    st.tuples(st.just("jump"), st.sampled_from(JUMPS_MS)),
)
SELDOM = st.one_of(
    st.sampled_from([("hand over", 0), ("repeat", 0), ("budget", 0), ("budget", 1), ("lose", 1), ("lose", 2)]),
    st.just(("forge", 4_102_444_800_000)),
    st.tuples(st.just("twice"), st.integers(0, 1)),
    st.tuples(st.just("read"), st.sampled_from((1, 2, 100))),
)
ACTIONS = st.one_of(
    HAPPENINGS, HAPPENINGS, st.tuples(st.just("look"), HAPPENINGS, HAPPENINGS), st.just(LOOK), st.just(LOOK), SELDOM
)

AHEAD: Happening = ("jump", HOUR_MS)
BACK: Happening = ("jump", 0)
SEND: Happening = ("arrive", 2)


@settings(some)
@given(st.lists(ACTIONS, min_size=5, max_size=40))
@example([("look", ("arrive", 3), ("jump", 300)), ("arrive", 1), ("look", ("jump", 30_000), ("arrive", 3)), LOOK])
@example([("look", SEND, ("pass", 30)), ("pass", 700), SEND, ("look", AHEAD, SEND), LOOK])
@example([("look", SEND, SEND), AHEAD, ("look", SEND, ("pass", 30)), BACK, ("look", ("pass", 700), AHEAD), SEND, LOOK])
@example([("look", SEND, SEND), AHEAD, LOOK, BACK, SEND, ("look", AHEAD, SEND)])
def test_the_state_is_a_function_of_the_stream(recording: Recording, actions: list[Action]) -> None:
    """Jumps of the clock, hand-overs, lost answers and readings at any moment leave what a calm run would have left."""
    recording.begin()
    recording.register(PAIR, KNOTS)
    lease = recording.acquire(PAIR.id, "one", 600_000)
    assert lease is not None
    world = World(recording, lease, recording.clock_ms(PAIR.id) // TICK_MS * TICK_MS)
    for action in actions:
        if len(action) == 3:
            world.look(action[1], action[2])
        else:
            world.do(action)
    world.settle()
    world.judge()
