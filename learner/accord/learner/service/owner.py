"""One pair in the hands of one learner: load, advance over closed ticks, commit."""

from __future__ import annotations

import logging

from ..counters import Counters
from ..errors import AccordError
from ..pair_learner import TICK_MS, Entry, PairLearner, tick_of
from ..sequences import Sequences
from ..state_codec import Learnt, decode_learnt, encode_learnt
from ..store import Commit, Lease, PairRecord, Publication, Store, stream_id

log = logging.getLogger(__name__)

AHEAD_MS = 5_000
"""An id this far ahead of the store's clock was not given by it."""


class StateMismatchError(AccordError):
    """The stored state belongs to another K or other knots than the registered pair."""


class PairOwner:
    """Advances one pair under a lease.

    Args:
        store: where the pair lives.
        record: the registered pair.
        lease: held by this learner.

    Raises:
        Refusal: when the stored state cannot be understood.
        StateMismatchError: when it is another pair's.
    """

    def __init__(self, store: Store, record: PairRecord, lease: Lease) -> None:
        self.store, self.lease, self.pair_id = store, lease, record.pair.id
        stored = store.load(self.pair_id)
        learnt = (
            Learnt.new(self.pair_id, record.pair.k, record.knots) if stored.body is None else decode_learnt(stored.body)
        )
        state = learnt.state
        if (state.pair, state.k, state.knots) != (self.pair_id, record.pair.k, record.knots):
            raise StateMismatchError(f"state of {self.pair_id} has K = {state.k} and knots {state.knots}")
        sequences, counters = Sequences.decode(stored.sequences), Counters.decode(stored.counters)
        self.learner = PairLearner(learnt, sequences, counters, stored.watermark)

    @property
    def watermark(self) -> str:
        """Id of the last entry that is learnt."""
        return self.learner.watermark

    def step(self, entries: list[Entry], clock_ms: int, read_count: int) -> int:
        """Learns what lies in closed ticks, commits it in one step, and returns how many versions were published.

        Args:
            entries: read behind the watermark, after the clock was.
            clock_ms: unix milliseconds by the store's clock.
            read_count: how many entries were asked for; when that many came, their last tick may be incomplete.

        Raises:
            FenceLostError, WatermarkMovedError, VersionError: somebody else owns the pair now; drop this owner.
            StoreUnavailableError: the commit may or may not have happened; drop this owner and load again.
        """
        self._keep_to_the_present(entries, clock_ms)
        whole, closed = self._whole_ticks(entries, clock_ms // TICK_MS, read_count)
        before = self.watermark
        published = self.learner.advance(whole, closed)
        if not whole and not published:
            return 0
        learner = self.learner
        publications = [
            Publication(p.table.version, p.table.to_json(), p.history, p.table.published_ms) for p in published
        ]
        self.store.commit(
            self.lease,
            Commit(
                expected_watermark=before,
                watermark=learner.watermark,
                body=encode_learnt(learner.learnt),
                sequences=learner.sequences.encode(),
                counters=learner.counters.encode(),
                version=learner.learnt.served.version,
                publications=publications,
            ),
        )
        return len(published)

    def _keep_to_the_present(self, entries: list[Entry], clock_ms: int) -> None:
        """Redis gives no id below the newest one, so a single id in the future would hold up all that follow."""
        limit_ms = clock_ms + AHEAD_MS
        if entries and stream_id("entry", entries[-1][0])[0] >= limit_ms:
            moved = self.store.bring_back(self.lease, limit_ms)
            if moved:
                log.warning("%s: %d entries had ids in the future and were given ids of now", self.pair_id, moved)

    def _whole_ticks(self, entries: list[Entry], closed: int, read_count: int) -> tuple[list[Entry], int]:
        """The entries of ticks that are over and were read whole, and the tick before which nothing is unread."""
        if len(entries) >= read_count:
            entries = entries + self._rest_of_tick(entries[-1], read_count)
            # What lies behind was not read: nothing may be concluded from the silence of those ticks.
            closed = min(closed, tick_of(entries[-1][0]) + 1)
        return [entry for entry in entries if tick_of(entry[0]) < closed], closed

    def _rest_of_tick(self, last: Entry, read_count: int) -> list[Entry]:
        rest: list[Entry] = []
        tick = tick_of(last[0])
        while more := self.store.read(self.pair_id, (rest[-1] if rest else last)[0], read_count):
            same = [entry for entry in more if tick_of(entry[0]) == tick]
            rest += same
            if len(same) < read_count:
                break
        return rest
