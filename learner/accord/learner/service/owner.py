"""One pair in the hands of one learner: load, advance over closed ticks, commit."""

from __future__ import annotations

from ..counters import Counters
from ..errors import AccordError
from ..pair_learner import TICK_MS, Entry, PairLearner, tick_of
from ..sequences import Sequences
from ..state_codec import Learnt, decode_learnt, encode_learnt
from ..store import Commit, Lease, PairRecord, Publication, Store


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
        closed = clock_ms // TICK_MS
        whole = self._whole_ticks(entries, closed, read_count)
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

    def _whole_ticks(self, entries: list[Entry], closed: int, read_count: int) -> list[Entry]:
        """The entries of ticks that are over and were read to their end."""
        if len(entries) >= read_count and entries:
            last = tick_of(entries[-1][0])
            while len(more := self.store.read(self.pair_id, entries[-1][0], read_count)) >= read_count:
                if tick_of(more[-1][0]) != last:
                    break
                entries = entries + more
            entries = entries + [entry for entry in more if tick_of(entry[0]) == last]
        return [entry for entry in entries if tick_of(entry[0]) < closed]
