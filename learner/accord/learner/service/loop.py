"""The loop of a learner process: once a tick, everything that closed ticks taught."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

from ..errors import AccordError
from ..logs import event
from ..pair_learner import TICK_MS, Entry
from ..store import (
    Entries,
    FenceLostError,
    Lease,
    OverridesMovedError,
    Store,
    StoreError,
    StoreUnavailableError,
    VersionError,
    WatermarkMovedError,
    connect,
    safe_url,
    stream_id,
)
from .journal import Journal
from .keeper import LeaseKeeper
from .membership import Membership
from .owner import PairOwner, is_cut
from .settings import LearnerSettings
from .watch import Watcher, Watchers

log = logging.getLogger(__name__)

_AFTER_TICK_MS = 3
_LONGEST_BACKOFF_S = 2.0
_REASONS = {
    FenceLostError: "fence",
    WatermarkMovedError: "watermark",
    VersionError: "version",
    OverridesMovedError: "overrides",
}

GRACE_S = 1.0
"""How long a learner that is told to stop waits for an answer of the store."""


class LearnerService:
    """Learns the pairs it holds until it is told to stop.

    Args:
        settings: of this process.
        store: for tests; by default one is connected from the settings.
        watchers: told of everything, beside the log.
    """

    def __init__(self, settings: LearnerSettings, store: Store | None = None, watchers: Sequence[Watcher] = ()) -> None:
        self.settings = settings
        self.watch = Watchers(Journal(safe_url(settings.redis_url)), *watchers)
        self._given = store
        self._opened: Store | None = store
        self._membership: Membership | None = None
        self._stop, self._ended = threading.Event(), threading.Event()
        self._next_rebalance = 0.0
        self._keeper = LeaseKeeper(settings.lease_ms, self._leases)

    def _leases(self) -> tuple[Store, list[Lease]]:
        return self.store, [owner.lease for owner in list(self.membership.owners.values())]

    @property
    def store(self) -> Store:
        """The store; connected when it is first asked for, because a cluster answers only when it is up."""
        if self._opened is None:
            self._opened = Store(connect(self.settings.redis_url, role="learner"))
        return self._opened

    @property
    def membership(self) -> Membership:
        """The pairs that this learner holds."""
        if self._membership is None:
            self._membership = Membership(self.store, self.settings, self.watch)
        return self._membership

    def stop(self) -> None:
        """Ends the loop after the cycle that runs now; a store that says nothing is waited for GRACE_S at most.

        Not to be called in a signal handler, see `accord.learner.signals`.
        """
        self._stop.set()

    def _hang_up(self) -> None:
        """Once the loop shall end: ends every wait for the store, until it has."""
        self._stop.wait()
        wait_s = GRACE_S
        while not self._ended.wait(wait_s):
            wait_s = 0.05
            if self._opened is not None:
                with suppress(Exception):
                    self._opened.hang_up()

    def run(self) -> None:
        """Runs until `stop`, then gives every lease back.

        A store that is out of reach is waited for; so is one that refuses now what it once did.

        Raises:
            StoreError: when the store refuses the first pass for good.
        """
        threading.Thread(target=self._hang_up, name="accord-learner-stop", daemon=True).start()
        try:
            with self._keeper.running():
                self._learn()
        finally:
            self.stop()
            try:
                self._leave()
            finally:
                self._ended.set()

    def _learn(self) -> None:
        reached, ever, failures = False, False, 0
        while not self._stop.is_set():
            try:
                pause = self.cycle()
                if not reached:
                    self.watch.store_reached()
                reached, ever, failures = True, True, 0
            except StoreError as error:
                if not isinstance(error, StoreUnavailableError) and not ever:
                    # Wrong from the start: whoever starts it should read why at once.
                    raise StoreError(f"store {safe_url(self.settings.redis_url)}: {error}") from error
                # Whether the last commit happened is unknown: only the store can tell, so memory is given up.
                if self._membership is not None:
                    self._membership.drop_all("the store is away")
                self._next_rebalance = 0.0
                if not failures:
                    self.watch.store_lost(str(error))
                reached, failures = False, failures + 1
                pause = random.uniform(0.05, min(0.1 * 2.0**failures, _LONGEST_BACKOFF_S))
            self.watch.passed()
            self._stop.wait(pause)

    def cycle(self) -> float:
        """One pass over the pairs; returns how many seconds to wait for the next tick to close.

        Raises:
            StoreUnavailableError: the store is away.
        """
        now = time.monotonic()
        if now >= self._next_rebalance:
            self.membership.rebalance()
            self._next_rebalance = now + self.settings.lease_ms / 3000.0
        membership = self.membership
        if not membership.owners:
            return TICK_MS / 1000.0
        # The clock first: what is read after it can only be newer, so a tick before it is complete.
        clock, entries = self._clock(), self._read()
        backlog = False
        for pair_id, found in entries.items():
            # Learning a backlog takes long: every pair's lease is looked after between two commits.
            if self._stop.is_set() or not membership.keep():
                break
            if owner := membership.owners.get(pair_id):
                self._step(owner, found, clock)
                backlog = backlog or owner.behind or is_cut(found, self.settings.read_count)
        if backlog:
            return 0.0
        return (TICK_MS - clock % TICK_MS + _AFTER_TICK_MS) / 1000.0

    def _step(self, owner: PairOwner, entries: list[Entry], clock_ms: int) -> None:
        """Learns one pair's closed ticks."""
        pair_id = owner.pair_id
        try:
            with self._keeper.step():
                owner.step(entries, clock_ms, self.settings.read_count)
        except StoreUnavailableError:
            self.watch.commit_failed(pair_id, "unavailable")
            raise
        except (FenceLostError, WatermarkMovedError, VersionError, OverridesMovedError) as error:
            self.watch.commit_failed(pair_id, _REASONS[type(error)])
            self.membership.drop(pair_id, str(error))
        except AccordError as error:
            self.watch.pair_failed(pair_id, str(error))
            self.membership.set_aside(pair_id)
        except Exception:  # noqa: BLE001
            # One pair that cannot be learnt must not end the others; its stream and state stay as they are.
            self.watch.pair_failed(pair_id, "")
            self.membership.set_aside(pair_id)
        else:
            self._waiting(owner, entries, clock_ms)

    def _waiting(self, owner: PairOwner, entries: list[Entry], clock_ms: int) -> None:
        """Tells what the step left: all that was read and not learnt, unless there was more than was asked for."""
        mark = stream_id("watermark", owner.watermark)
        left = list(takewhile(lambda entry: stream_id("entry", entry[0]) > mark, reversed(entries)))
        count, oldest_ms = len(left), stream_id("entry", left[-1][0])[0] if left else None
        if is_cut(entries, self.settings.read_count):
            count, oldest_ms = self.store.backlog(owner.pair_id, owner.watermark)
        self.watch.waiting(owner.pair_id, count, max(0.0, (clock_ms - (oldest_ms or clock_ms)) / 1000.0))

    def _read(self) -> dict[str, Entries]:
        """What waits behind every watermark; a pair whose stream cannot be read is set aside."""
        after = {pair_id: owner.watermark for pair_id, owner in self.membership.owners.items()}
        try:
            return self.store.read_many(after, self.settings.read_count)
        except StoreUnavailableError:
            raise
        except StoreError:
            single = {pair_id: self._read_one(pair_id, place) for pair_id, place in after.items()}
            return {pair_id: found for pair_id, found in single.items() if found is not None}

    def _read_one(self, pair_id: str, after: str) -> Entries | None:
        try:
            return self.store.read(pair_id, after, self.settings.read_count)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            self.watch.pair_failed(pair_id, str(error))
            self.membership.set_aside(pair_id)
            return None

    def _clock(self) -> int:
        """Unix ms by the store's clock: in a cluster the slowest of the nodes that hold the pairs."""
        owners = list(self.membership.owners)
        return min(self.store.clock_ms(pair_id) for pair_id in (owners if self.store.clustered else owners[:1]))

    def _leave(self) -> None:
        if self._opened is None:
            return
        try:
            self.membership.leave()
        except StoreError as error:
            event(log, "leases not given back", level=logging.WARNING, reason=str(error))
        finally:
            self._opened.close()
