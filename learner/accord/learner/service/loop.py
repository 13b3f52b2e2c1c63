"""The loop of a learner process: once a tick, everything that closed ticks taught."""

from __future__ import annotations

import logging
import random
import threading
import time

from ..pair_learner import TICK_MS
from ..store import (
    FenceLostError,
    Store,
    StoreError,
    StoreUnavailableError,
    VersionError,
    WatermarkMovedError,
    connect,
    safe_url,
)
from .membership import Membership
from .settings import LearnerSettings

log = logging.getLogger(__name__)

_AFTER_TICK_MS = 3
_LONGEST_BACKOFF_S = 2.0


class LearnerService:
    """Learns the pairs it holds until it is told to stop.

    Args:
        settings: of this process.
        store: for tests; by default one is connected from the settings.
    """

    def __init__(self, settings: LearnerSettings, store: Store | None = None) -> None:
        self.settings = settings
        self.store = store or Store(connect(settings.redis_url, role="learner"))
        self.membership = Membership(self.store, settings)
        self._stop = threading.Event()
        self._next_rebalance = 0.0

    def stop(self) -> None:
        """Ends the loop after the cycle that runs now; safe in a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Runs until `stop`, then gives every lease back. An unreachable store is waited for."""
        failures = 0
        while not self._stop.is_set():
            try:
                pause = self.cycle()
                if failures:
                    log.info("the store at %s is back", safe_url(self.settings.redis_url))
                failures = 0
            except StoreUnavailableError as error:
                # Whether the last commit happened is unknown: only the store can tell, so memory is given up.
                self.membership.drop_all("the store is away")
                self._next_rebalance = 0.0
                if not failures:
                    log.warning("the store at %s is away: %s", safe_url(self.settings.redis_url), error)
                failures += 1
                pause = random.uniform(0.05, min(0.1 * 2.0**failures, _LONGEST_BACKOFF_S))
            self._stop.wait(pause)
        self._leave()

    def cycle(self) -> float:
        """One pass over the pairs; returns how many seconds to wait for the next tick to close.

        Raises:
            StoreUnavailableError: the store is away.
        """
        now = time.monotonic()
        if now >= self._next_rebalance:
            self.membership.rebalance()
            self._next_rebalance = now + self.settings.lease_ms / 3000.0
        owners = self.membership.owners
        if not owners:
            return TICK_MS / 1000.0
        # The clock first: what is read after it can only be newer, so a tick before it is complete.
        clocks = self._clocks()
        entries = self.store.read_many({p: o.watermark for p, o in owners.items()}, self.settings.read_count)
        backlog = False
        for pair_id, owner in list(owners.items()):
            try:
                owner.step(entries[pair_id], clocks[pair_id], self.settings.read_count)
            except (FenceLostError, WatermarkMovedError, VersionError) as error:
                self.membership.drop(pair_id, str(error))
            except StoreUnavailableError:
                raise
            except StoreError as error:
                self.membership.drop(pair_id, f"the store refused: {error}")
            except Exception:
                # One pair that cannot be learnt must not end the others; its stream and state stay as they are.
                log.exception("cannot learn %s", pair_id)
                self.membership.set_aside(pair_id)
            backlog = backlog or len(entries[pair_id]) >= self.settings.read_count
        if backlog:
            return 0.0
        clock = max(clocks.values())
        return (TICK_MS - clock % TICK_MS + _AFTER_TICK_MS) / 1000.0

    def _clocks(self) -> dict[str, int]:
        owners = list(self.membership.owners)
        if self.store.clustered:
            return {pair_id: self.store.clock_ms(pair_id) for pair_id in owners}
        return dict.fromkeys(owners, self.store.clock_ms(owners[0]))

    def _leave(self) -> None:
        try:
            self.membership.leave()
        except StoreUnavailableError as error:
            log.warning("leases were not given back, they lapse by themselves: %s", error)
        finally:
            self.store.close()
