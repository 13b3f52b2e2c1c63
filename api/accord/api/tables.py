"""The published tables in memory: one read of the store a change, however many clients ask or wait.

A table counts as current while the change feed is alive and nothing was announced since it was read. It is stale while
the feed is cut (a message may have been missed), or after a read failed; stale tables are served all the same, marked.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from accord.learner.store.errors import StoreError, StoreUnavailableError

from .errors import PairUnknownError
from .waiters import Waiters

MAX_AGE_S = 30.0
"""A table that was read longer ago is read again when somebody asks: a net under changes that nobody announces, such as
a restored backup."""
CUT_AGE_S = 2.0
"""The same while the change feed is cut; that read happens behind the answer."""
RETRY_S = (0.1, 2.0)
"""First and longest pause before a failed refresh is tried again, while somebody waits for it."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is served for a pair: exact bytes and their strong, quoted ETag.

    `expires_ms` is the end of the first override in it, unix ms by the store's clock, and `lapses_in_s` how far away
    that was when the table was read.
    """

    version: int
    etag: str
    body: bytes
    published_ms: int
    expires_ms: int | None = None
    lapses_in_s: float | None = None


@dataclass(eq=False, slots=True)
class _Slot:
    pair: str
    table: Table | None = None
    current: bool = False
    read_at: float = 0.0
    changed: bool = False
    failures: int = 0
    error: StoreError | None = None
    reading: asyncio.Task[None] | None = None
    retry: asyncio.TimerHandle | None = None
    lapse: asyncio.TimerHandle | None = None


class Tables:
    """Reads each table once, keeps it until something changes, and wakes who waits for that.

    Args:
        read: reads a pair's table from the store; None for an unknown pair; raises StoreError.
        waiters: woken whenever the table of their pair may have changed.
        limit: pairs kept in memory, beyond those that somebody waits for right now.
        noticed: told of every table that was read: the one before, None without one or where nobody waited for the
            next, and the new one.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[Table | None]],
        waiters: Waiters,
        limit: int,
        noticed: Callable[[Table | None, Table], None] = lambda before, table: None,
    ) -> None:
        self._read = read
        self._noticed = noticed
        self._waiters = waiters
        self._limit = limit
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        # Read for the first time; apart, so that asking for pairs that do not exist pushes out none that does.
        self._new: dict[str, _Slot] = {}
        self._live = False
        self._closed = False

    def __len__(self) -> int:
        """How many pairs are kept."""
        return len(self._slots)

    @property
    def stale(self) -> int:
        """How many of them may not be the ones in force."""
        slots = list(self._slots.values())
        return sum(not slot.current for slot in slots) if self._live else len(slots)

    async def get(self, pair: str) -> tuple[Table, bool]:
        """The table of a pair, and whether it may be stale.

        Raises:
            PairUnknownError: when no engine has registered it.
            StoreError: when it is not in memory and cannot be read.
        """
        table = self.at_hand(pair)
        if table is not None:
            return table, False
        slot = self._find(pair)
        if slot is None:
            slot = self._new[pair] = _Slot(pair)
        elif pair in self._slots:
            self._slots.move_to_end(pair)
        age = asyncio.get_running_loop().time() - slot.read_at
        if slot.table is not None and not self._live:
            # Nobody waits for a store that is away: the old table at once, and news for whoever comes next.
            if age > CUT_AGE_S:
                self._refresh(slot)
            return slot.table, True
        await asyncio.shield(self._refresh(slot))
        if slot.table is None:
            if slot.current:
                raise PairUnknownError(pair)
            error = slot.error or StoreUnavailableError("not read yet")
            raise type(error)(str(error))
        return slot.table, not slot.current

    def at_hand(self, pair: str) -> Table | None:
        """The table of a pair when it is in memory and current, so that nobody need be asked."""
        slot = self._slots.get(pair)
        if slot is None or slot.table is None or not (slot.current and self._live):
            return None
        if asyncio.get_running_loop().time() - slot.read_at >= MAX_AGE_S:
            return None
        self._slots.move_to_end(pair)
        return slot.table

    def peek(self, pair: str) -> Table | None:
        """What is in memory, without reading anything."""
        slot = self._slots.get(pair)
        return slot.table if slot else None

    def changed(self, pair: str, version: int) -> None:
        """The store announced a version, whichever. Read at once when somebody waits, otherwise when somebody asks."""
        slot = self._find(pair)
        if slot is None:
            return
        slot.changed = True
        if not slot.reading:
            self._expire(slot)

    def feed_back(self) -> None:
        """The change feed is (again) alive: whatever is in memory may have changed unseen."""
        self._live = True
        for slot in self._all():
            slot.changed = True
            if not slot.reading:
                self._expire(slot)

    def feed_lost(self) -> None:
        """The change feed is cut: everything in memory may go stale from here on."""
        self._live = False

    def close(self) -> None:
        """Ends reads and retries that are under way."""
        self._closed = True
        for slot in self._all():
            _disarm(slot)
            if slot.reading:
                slot.reading.cancel()

    def _expire(self, slot: _Slot) -> None:
        slot.current = False
        if self._waiters.has(slot.pair):
            self._refresh(slot)

    def _refresh(self, slot: _Slot) -> asyncio.Task[None]:
        if slot.reading is None:
            if slot.retry:
                slot.retry.cancel()
                slot.retry = None
            slot.reading = asyncio.create_task(self._load(slot), name=f"read {slot.pair}")
        return slot.reading

    async def _load(self, slot: _Slot) -> None:
        try:
            while True:
                slot.changed, slot.read_at = False, asyncio.get_running_loop().time()
                before, slot.table = slot.table, await self._read(slot.pair)
                if slot.table is not None:
                    # Without anybody who waits a version is read whenever somebody asks: that would tell of their pace.
                    self._noticed(before if self._waiters.has(slot.pair) else None, slot.table)
                # A change announced meanwhile may be what was just read, but its version does not say so: a restored
                # backup gives old numbers to new tables.
                slot.current, slot.failures = not slot.changed, 0
                self._watch(slot)
                if before is None or slot.table is None or before.etag != slot.table.etag:
                    self._waiters.wake(slot.pair)
                if slot.current:
                    return
        except StoreError as error:
            slot.current, slot.error = False, error
            slot.failures += 1
            self._retry(slot)
        finally:
            slot.reading = None
            self._settle(slot)

    def _retry(self, slot: _Slot) -> None:
        if self._closed or not self._waiters.has(slot.pair):
            return
        first, longest = RETRY_S
        pause = min(longest, first * 2 ** min(slot.failures, 16)) * random.uniform(0.5, 1.0)
        slot.retry = asyncio.get_running_loop().call_later(pause, self._again, slot)

    def _again(self, slot: _Slot) -> None:
        slot.retry = None
        if self._waiters.has(slot.pair):
            self._refresh(slot)

    def _watch(self, slot: _Slot) -> None:
        """Reads again at the moment at which an override ends, whether or not anybody asks; reading takes it away."""
        if slot.lapse:
            slot.lapse.cancel()
            slot.lapse = None
        if not self._closed and slot.table is not None and slot.table.lapses_in_s is not None:
            slot.lapse = asyncio.get_running_loop().call_later(slot.table.lapses_in_s, self._lapsed, slot)

    def _lapsed(self, slot: _Slot) -> None:
        slot.lapse = None
        # A read that is under way may have begun too early.
        slot.changed, slot.current = True, False
        self._refresh(slot)

    def _settle(self, slot: _Slot) -> None:
        """After a read: keeps the pair if there is such a pair, and makes room for it."""
        if self._new.get(slot.pair) is slot:
            del self._new[slot.pair]
            if slot.table is not None:
                self._slots[slot.pair] = slot
        elif slot.table is None:
            self._forget(slot)
        while len(self._slots) > self._limit:
            idle = next((s for s in self._slots.values() if not s.reading and not self._waiters.has(s.pair)), None)
            if idle is None:
                return
            self._forget(idle)

    def _forget(self, slot: _Slot) -> None:
        if self._slots.get(slot.pair) is slot:
            del self._slots[slot.pair]
        _disarm(slot)

    def _find(self, pair: str) -> _Slot | None:
        return self._slots.get(pair) or self._new.get(pair)

    def _all(self) -> list[_Slot]:
        return [*self._slots.values(), *self._new.values()]


def _disarm(slot: _Slot) -> None:
    for timer in (slot.retry, slot.lapse):
        if timer:
            timer.cancel()
