"""One pair in the hands of one learner: load, advance over closed ticks, commit."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from itertools import groupby

from ..carry import by_nearness, carried
from ..coefficients import CoefficientTable
from ..counters import Counters
from ..effects import effects, explained
from ..errors import AccordError
from ..logs import event
from ..overrides import next_expiry
from ..pair_learner import TICK_MS, Entry, PairLearner, Published, tick_of
from ..sequences import Sequences
from ..state_codec import Learnt, decode_learnt, encode_learnt
from ..store import (
    Commit,
    Entries,
    Lease,
    OverridesMovedError,
    PairRecord,
    Retention,
    Store,
    StoreError,
    StoreUnavailableError,
    stream_id,
)
from .heartbeats import Heartbeats
from .pair_time import AHEAD_MS, PairTime, settled
from .progress import Progress
from .repair import Repair
from .shadow import served_instead
from .watch import Watcher

log = logging.getLogger(__name__)


COMPOSED_AGAIN = 8
"""How often a commit is composed again because an operator changed something meanwhile."""


class StateMismatchError(AccordError):
    """The stored state belongs to another K or other knots than the registered pair."""


class PairOwner:
    """Advances one pair under a lease.

    Args:
        store: where the pair lives.
        record: the registered pair.
        lease: held by this learner.
        budget_s: after this many seconds a step commits what it has, and leaves the rest for the next one.
        carry: whether a pair that nobody has learnt may start from the nearest known pair's prior.
        watch: told of every committed step.
        retention: how much history stays.

    Attributes:
        behind: whether the last step left something, for want of time.
        committed: watermark that the store is known to have had.

    Raises:
        Refusal: when the stored state cannot be understood.
        StateMismatchError: when it is another pair's.
    """

    def __init__(
        self,
        store: Store,
        record: PairRecord,
        lease: Lease,
        budget_s: float = 1.0,
        *,
        carry: bool = False,
        watch: Watcher | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.budget_s, self.behind = budget_s, False
        self.watch = watch or Watcher()
        self.store, self.lease, self.pair_id = store, lease, record.pair.id
        self.record, self.retention = record, retention or Retention()
        stored = store.load(self.pair_id)
        if stored.body is not None:
            learnt = decode_learnt(stored.body)
        else:
            learnt = Learnt.new(self.pair_id, record.pair.k, record.knots)
            learnt = self._carried(learnt, record) if carry else learnt
        state = learnt.state
        if (state.pair, state.k, state.knots) != (self.pair_id, record.pair.k, record.knots):
            raise StateMismatchError(f"state of {self.pair_id} has K = {state.k} and knots {state.knots}")
        sequences, counters = Sequences.decode(stored.sequences), Counters.decode(stored.counters)
        self.learner = PairLearner(learnt, sequences, counters, stored.watermark)
        self.progress = Progress(self.pair_id, self.learner)
        self.heartbeats = Heartbeats(store, self.pair_id)
        self.time = PairTime(store, lease)
        self.repair = Repair(store, lease)
        self.committed = stored.watermark

    @property
    def watermark(self) -> str:
        """Id of the last entry that is learnt."""
        return self.learner.watermark

    @property
    def _earliest_ms(self) -> int:
        """The first millisecond in which an entry may be given an id."""
        return max(self.time.reached_ms, settled(self.watermark, self.learner.learnt.served.published_ms))

    def rewound(self, committed: str) -> bool:
        """Counts it when the state that was loaded is older than what the store had acknowledged."""
        if stream_id("watermark", self.watermark) >= stream_id("committed", committed):
            return False
        self.learner.counters.rewinds += 1
        return True

    @property
    def engines(self) -> set[str]:
        """Names of the engines whose summaries were learnt, and that were heard within a day."""
        return {engine for engine, _ in self.learner.sequences.last}

    def step(self, entries: list[Entry], clock_ms: int, read_count: int) -> int:
        """Learns what lies in closed ticks, commits it in one step, and returns how many versions were published.

        Args:
            entries: read behind the watermark, after the clock was.
            clock_ms: unix milliseconds by the store's clock.
            read_count: how many entries were asked for; when that many came, their last tick may be incomplete.

        Raises:
            FenceLostError, WatermarkMovedError, VersionError, OverridesMovedError: somebody else owns the pair now, or
                operators change it faster than it can be composed; drop this owner.
            StoreUnavailableError: the commit may or may not have happened; drop this owner and load again.
        """
        self.progress.begin()
        first, learnt = entries[0][0] if entries else None, self.learner.learnt
        clock_ms = self.time.complete(clock_ms, self.watermark, learnt.served.published_ms, first, learnt.due)
        if self._kept_to_the_present(entries):
            # Their new ids may lie in ticks that are over by the clock: nothing is concluded before they are read.
            return 0
        whole, closed = self._whole_ticks(entries, clock_ms // TICK_MS, read_count)
        before = self.watermark
        # As of before anything that waits, or what waits would come where something is settled.
        opening = min([clock_ms // TICK_MS, *(tick_of(entry[0]) for entry in entries[:1])])
        published = self.learner.begin(opening) + self._advance(whole, closed)
        published += self._fall_due(closed, entries[-1][0] if entries else before)
        if not published:
            now_ms = max(self.time.now_ms, self._earliest_ms)
            published = self.repair.look(self.learner.learnt, now_ms + AHEAD_MS, now_ms)
        if not whole and not published:
            return 0
        learner = self.learner
        commit = Commit(
            expected_watermark=before,
            watermark=learner.watermark,
            body=encode_learnt(learner.learnt),
            sequences=learner.sequences.encode(),
            counters=learner.counters.encode(),
            version=learner.learnt.served.version,
        )
        began = time.monotonic()
        served = self._commit(commit, published)
        self.committed = learner.watermark
        took = time.monotonic() - began
        self.watch.stepped(self.progress.committed(served, self._now_ms() if published else None, took))
        return len(served)

    def _commit(self, commit: Commit, published: list[Published]) -> list[Published]:
        """Commits; what was learnt does not depend on overrides, so a change of theirs only composes it anew."""
        if not published:
            self.store.commit(self.lease, commit, self.retention)
            return []
        state = self.learner.learnt.state
        for _ in range(COMPOSED_AGAIN):
            standing = self.store.settled(
                self.record, lambda change: explained(change, effects(state, change.learnt, change.table))
            )
            lost = not standing.version
            # Engines and history may know versions of coefficients that were deleted since.
            known = self.store.newest_version(self.pair_id) if lost else 0
            served = served_instead(published, standing, state, known)
            composed = replace(commit, publications=served.publications, revision=served.revision, learnt=served.learnt)
            if lost and standing.overrides:
                # Before the commit: whoever ends after it says nothing more, and nobody would end the override.
                self.store.note_expiry(self.pair_id, next_expiry(standing.overrides.values()))
            try:
                self.store.commit(self.lease, composed, self.retention)
            except OverridesMovedError as error:
                moved = error
            else:
                return served.published
        raise moved

    def _now_ms(self) -> int | None:
        # Only to be told: nothing depends on it, least of all what was committed already.
        try:
            return self.store.clock_ms(self.pair_id)
        except StoreError:
            return None

    def _advance(self, entries: list[Entry], closed: int) -> list[Published]:
        """Tick by tick, as far as the time goes: a commit must come well before the lease lapses."""
        end = time.monotonic() + self.budget_s
        published: list[Published] = []
        ticks = [(tick, list(group)) for tick, group in groupby(entries, key=lambda entry: tick_of(entry[0]))]
        self.behind = False
        for place, (tick, group) in enumerate(ticks, start=1):
            found = self.learner.advance(group, tick + 1)
            self.progress.advanced(found, group[-1][0])
            published += found
            if place < len(ticks) and time.monotonic() >= end:
                self.behind = True
                return published
        return published

    def _fall_due(self, closed: int, last: str) -> list[Published]:
        """Publishes what waits, if its tick is over and nothing came in it.

        A clock that goes ahead and comes back says that ticks are over which are not: entries would then arrive in
        ticks from whose silence something was concluded. So the stream's last id is moved behind the tick first.

        Args:
            closed: ticks before this one are over by the clock.
            last: id of the last entry that was read.
        """
        due = None if self.behind else self.learner.idle_until_tick
        if due is None or due >= closed:
            return []
        if tick_of(last) <= due:
            self.time.move_on((due + 1) * TICK_MS)
            if any(tick_of(entry[0]) <= due for entry in self.store.read(self.pair_id, last, 1)):
                return []
        found = self.learner.advance([], closed)
        self.progress.advanced(found)
        return found

    def _kept_to_the_present(self, entries: list[Entry]) -> bool:
        """Redis gives no id below the newest one, so a single id in the future would hold up all that follow.

        Returns whether all that waits lay in the future. It has other ids then, none of which lies where something is
        settled; also when the store, asked again after its answer was lost, finds nothing to move any more.
        """
        limit_ms = self.time.now_ms + AHEAD_MS
        if not entries or stream_id("entry", entries[0][0])[0] < limit_ms:
            return False
        moved = self.store.bring_back(self.lease, limit_ms, self.time.now_ms, self._earliest_ms, TICK_MS)
        if moved:
            why = "their ids lay in the future"
            event(log, "entries brought back", level=logging.WARNING, pair=self.pair_id, count=moved, reason=why)
        return True

    def _carried(self, fresh: Learnt, record: PairRecord) -> Learnt:
        known = {pair_id: (other.pair, other.knots) for pair_id, other in self.store.pairs().items()}
        for pair_id in by_nearness(record.pair, record.knots, known):
            try:
                served = self.store.coefficients(pair_id)
                if served is not None and served.version > 0:
                    # What an operator put there is a wish for that pair only.
                    return carried(fresh, CoefficientTable.from_json(served.learnt or served.body))
            except StoreUnavailableError:
                raise
            except AccordError as error:
                # What is wrong with another pair's keys is no reason not to learn this one.
                event(log, "prior not carried", level=logging.WARNING, pair=self.pair_id, reason=str(error))
        return fresh

    def _whole_ticks(self, entries: list[Entry], closed: int, read_count: int) -> tuple[list[Entry], int]:
        """The entries of ticks that are over and were read whole, and the tick before which nothing is unread."""
        if is_cut(entries, read_count):
            entries = entries + self._rest_of_tick(entries[-1], read_count)
            # What lies behind was not read: nothing may be concluded from the silence of those ticks.
            closed = min(closed, tick_of(entries[-1][0]) + 1)
        return [entry for entry in entries if tick_of(entry[0]) < closed], closed

    def _rest_of_tick(self, last: Entry, read_count: int) -> list[Entry]:
        rest: list[Entry] = []
        end_ms = (tick_of(last[0]) + 1) * TICK_MS
        while more := self.store.read(self.pair_id, (rest[-1] if rest else last)[0], read_count, before_ms=end_ms):
            rest += more
            if not is_cut(more, read_count):
                break
        return rest


def is_cut(entries: list[Entry], read_count: int) -> bool:
    """Whether there may be more than was read."""
    return len(entries) >= read_count or (isinstance(entries, Entries) and entries.cut)
