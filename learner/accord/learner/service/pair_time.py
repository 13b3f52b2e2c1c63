"""What time it is for a pair: the store's clock, and its own when that went back."""

from __future__ import annotations

import logging

from ..logs import event
from ..pair_learner import TICK_MS, tick_of
from ..store import Lease, Store, StoreError, StoreUnavailableError, stream_id

log = logging.getLogger(__name__)

AHEAD_MS = 5_000
"""An id this far ahead of the pair's time was not given by its store's clock."""

BACK_MS = 1_000
"""A watermark this far ahead of the store's clock says that the clock went back; less is waited for."""


class PairTime:
    """Never goes back, because the ids of a stream never do.

    Redis gives no entry an id below the newest one. When its clock goes back, all that arrives gets ids of one single
    moment in what is now the future, and a learner that waits for the clock would wait as long as the jump was: nothing
    would be learnt, and the stream would overflow. So the pair's time goes on from its newest entry, at the clock's
    pace, and with every tick the owner moves the stream's last id up to it: what arrives then gets ids of that tick.
    What arrived before, in a tick that is learnt already or from whose silence a publication was made, is moved along.
    A tick stays a matter of ids alone, which is why the state is still a function of the stream.

    Args:
        store: where the pair lives.
        lease: of its owner; nobody else may move ids.

    Attributes:
        now_ms: the pair's time.
        behind_ms: how far the store's clock is behind it; 0 as long as it is right.
        reached_ms: where the stream's last id was moved to; 0 as long as the clock is right.
    """

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease
        self.now_ms = self.behind_ms = self.reached_ms = 0
        self._told = False

    def complete(self, clock_ms: int, watermark: str, published_ms: int, first: str | None, due: bool) -> int:
        """The time, in unix milliseconds, before which every entry was read.

        Args:
            clock_ms: by the store's clock, read before the entries were.
            watermark: id of the last entry that is learnt.
            published_ms: as of when the last publication was made.
            first: id of the first entry that waits, None without any.
            due: whether a publication waits. Without one, and without entries, time stands still.
        """
        learnt_ms, settled_ms = stream_id("watermark", watermark)[0], settled(watermark, published_ms)
        late = first is not None and stream_id("entry", first)[0] < settled_ms
        newest_ms = max(learnt_ms, published_ms, self.reached_ms)
        if newest_ms - clock_ms < BACK_MS and not late:
            self.behind_ms = self.reached_ms = 0
            self.now_ms = clock_ms
            return clock_ms
        self._notice(clock_ms, newest_ms)
        before_ms = self.reached_ms
        if late:
            moved_ms = self.move_on(max(tick_start(self.now_ms), settled_ms), watermark)
            self.reached_ms = max(moved_ms, before_ms)
            # Either they have new ids now, or none can be given: then they are learnt where they are, as a tick that is
            # split, so that nothing waits for ever.
            return learnt_ms if moved_ms else settled_ms
        if (first is not None or due) and tick_start(self.now_ms) > newest_ms:
            self.reached_ms = self.move_on(tick_start(self.now_ms)) or before_ms
        # What was read before the last id moved may lack what came between the two: it counts from the next step on.
        return max(before_ms, clock_ms)

    def _notice(self, clock_ms: int, newest_ms: int) -> None:
        if self.behind_ms and clock_ms + self.behind_ms > self.now_ms + AHEAD_MS:
            # The clock went ahead, or this learner stood still: neither is a reason for the pair's time to jump.
            self.behind_ms = max(max(self.now_ms, newest_ms) - clock_ms, 0)
        if clock_ms + self.behind_ms < newest_ms:
            back_ms, self.behind_ms = newest_ms - clock_ms - self.behind_ms, newest_ms - clock_ms
            if back_ms >= BACK_MS:
                seconds = self.behind_ms / 1000.0
                event(log, "store's clock went back", level=logging.WARNING, pair=self._lease.pair_id, behind_s=seconds)
        self.now_ms = clock_ms + self.behind_ms

    def move_on(self, to_ms: int, watermark: str | None = None) -> int:
        """`Store.move_on`; 0 also when this learner has no right to move ids: then the clock is all there is."""
        try:
            return self._store.move_on(self._lease, to_ms, self.now_ms + AHEAD_MS, TICK_MS, watermark)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            if not self._told:
                self._told = True
                event(log, "ids cannot be moved", level=logging.WARNING, pair=self._lease.pair_id, reason=str(error))
            return 0


def settled(watermark: str, published_ms: int) -> int:
    """The first millisecond into which an entry may still come, in milliseconds of ids.

    Before it lie ticks that were learnt, and ticks without entries as of which something was published.

    >>> settled("1700000000251-3", 0), settled("1700000000251-3", 1700000001250)
    (1700000000500, 1700000001250)
    """
    return max((tick_of(watermark) + 1) * TICK_MS, published_ms)


def tick_start(ms: int) -> int:
    """The first millisecond of the tick of a time."""
    return ms // TICK_MS * TICK_MS
