"""How learners share the pairs: everyone announces itself and takes no more than its fair share."""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_right
from collections.abc import Mapping

from ..errors import AccordError
from ..logs import event
from ..store import Lease, PairRecord, Store, StoreError, StoreUnavailableError
from .journal import Journal
from .owner import PairOwner
from .settings import LearnerSettings
from .watch import Watcher

log = logging.getLogger(__name__)

ASIDE_S = 30.0
"""How long a learner leaves a pair alone on which it failed."""

CROWDED = 2_000
"""Registered pairs beyond which a learner takes none but those that were learnt already, or whose rounds wait: whoever
may register a pair may register a hundred thousand."""
CROWDED_EVERY_S = 20.0
"""How often such a register is read."""
LOOKS = 4_000
"""At how many of them it looks at a time."""
MAX_OWNED = 8_192
"""Pairs that one learner holds."""

SWEEP_S = 0.05
"""How long it looks through heartbeats between two passes over the leases."""


class Membership:
    """The leases of one learner.

    A learner that finds more pairs in its hands than an equal share gives the rest back; one that finds fewer takes
    free pairs. A dead learner's leases lapse, and its announcement with them, so that the others' shares grow.

    Args:
        store: where the leases are.
        settings: of this process.
        watch: told of every pair that comes and goes.

    Attributes:
        owners: pair id -> owner, for every pair this learner holds.
    """

    def __init__(self, store: Store, settings: LearnerSettings, watch: Watcher | None = None) -> None:
        self.store, self.settings = store, settings
        self.watch = watch or Journal()
        self.owners: dict[str, PairOwner] = {}
        self._broken: dict[str, str] = {}
        self._aside: dict[str, float] = {}
        self._committed: dict[str, str] = {}
        self._renewed = float("-inf")
        self._crowded, self._looked = False, ""
        self._records: Mapping[str, PairRecord] = {}
        self._read_at = float("-inf")

    def rebalance(self) -> None:
        """Announces this learner, renews its leases, and takes or gives back pairs."""
        self.store.announce(self.settings.learner_id, 3 * self.settings.lease_ms)
        self._renewed = float("-inf")
        self.keep()
        records = self._registered()
        share = math.ceil(len(records) / max(len(self.store.learners()), 1))
        for pair_id in list(self.owners)[share:]:
            self.give_back(pair_id)
        now = time.monotonic()
        for pair_id in self._candidates(records):
            # Taking thousands of pairs takes long: what is held already must not lapse meanwhile.
            if len(self.owners) >= min(share, MAX_OWNED) or time.monotonic() - now > self.settings.lease_ms / 6000.0:
                break
            if now < self._aside.get(pair_id, now):
                continue
            self._take(records[pair_id])
        self.sweep()

    def _registered(self) -> Mapping[str, PairRecord]:
        """The register; a crowded one is read less often."""
        now = time.monotonic()
        if not self._crowded or not self.store.register_complete or now - self._read_at >= CROWDED_EVERY_S:
            self._records, self._read_at = self.store.pairs(), now
        return self._records

    def _candidates(self, records: Mapping[str, PairRecord]) -> list[str]:
        """Pairs to take, the best first. In a crowded register only those in which something happens."""
        free = sorted(set(records) - set(self.owners))
        if len(records) <= CROWDED:
            self._crowded = False
            return free
        if not self._crowded:
            self._crowded = True
            event(log, "crowded register", level=logging.WARNING, pairs=len(records), reason="idle ones are left alone")
        begin = bisect_right(free, self._looked)
        look = [*free[begin:], *free[:begin]][:LOOKS]
        self._looked = look[-1] if look else ""
        learnt, waiting = self.store.stirring(look)
        return [*learnt, *waiting]

    def sweep(self) -> None:
        """Goes on looking through the pairs' heartbeats, for a moment."""
        end = time.monotonic() + SWEEP_S
        for owner in self.owners.values():
            while owner.heartbeats.due and time.monotonic() < end:
                try:
                    owner.heartbeats.go_on(owner.engines)
                except StoreUnavailableError:
                    raise
                except StoreError as error:
                    # A key of another type, or a right that is missing: learning does not depend on it.
                    event(log, "heartbeats not swept", level=logging.DEBUG, pair=owner.pair_id, reason=str(error))
                    break

    def drop(self, pair_id: str, why: str) -> None:
        """Forgets a pair whose lease is lost, or whose last commit is unknown."""
        owner = self.owners.pop(pair_id, None)
        if owner is not None:
            self._committed[pair_id] = owner.committed
            self.watch.pair_dropped(pair_id, why)

    def keep(self) -> bool:
        """Renews every lease when a third of its time is over; False when none is left."""
        now = time.monotonic()
        if now - self._renewed >= self.settings.lease_ms / 3000.0:
            self._renewed = now
            leases = [owner.lease for owner in self.owners.values()]
            for lease in self._lost(leases):
                self.drop(lease.pair_id, "the lease lapsed")
        return bool(self.owners)

    def _lost(self, leases: list[Lease]) -> list[Lease]:
        try:
            return self.store.renew_all(leases, self.settings.lease_ms)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            event(log, "cannot renew leases", level=logging.ERROR, reason=str(error))
            return leases

    def set_aside(self, pair_id: str) -> None:
        """Gives back a pair that could not be learnt, and leaves it alone for a while."""
        self._aside[pair_id] = time.monotonic() + ASIDE_S
        self.give_back(pair_id)

    def drop_all(self, why: str) -> None:
        """Forgets every pair: what is in memory may be ahead of the store."""
        for pair_id in list(self.owners):
            self.drop(pair_id, why)

    def give_back(self, pair_id: str) -> None:
        """Releases a pair for somebody else to take at once."""
        owner = self.owners.pop(pair_id)
        self._committed[pair_id] = owner.committed
        try:
            self.store.release(owner.lease)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            self.watch.pair_dropped(pair_id, f"cannot be given back: {error}")
        else:
            self.watch.pair_given_back(pair_id)

    def leave(self) -> None:
        """Gives everything back: the others take over without waiting for a lease to lapse."""
        for pair_id in list(self.owners):
            self.give_back(pair_id)
        self.store.retire(self.settings.learner_id)

    def _take(self, record: PairRecord) -> None:
        pair_id = record.pair.id
        try:
            lease = self.store.acquire(pair_id, self.settings.learner_id, self.settings.lease_ms)
            if lease is None:
                return
            try:
                budget_s = self.settings.lease_ms / 3000.0
                owner = PairOwner(
                    self.store,
                    record,
                    lease,
                    budget_s,
                    carry=self.settings.carry,
                    watch=self.watch,
                    retention=self.settings.retention,
                )
            except AccordError:
                self.store.release(lease)
                raise
        except StoreUnavailableError:
            raise
        except AccordError as error:
            if self._broken.get(pair_id) != str(error):
                self._broken[pair_id] = str(error)
                self.watch.pair_failed(pair_id, str(error))
            return
        committed = self._committed.pop(pair_id, owner.committed)
        if owner.rewound(committed):
            self.watch.store_rewound(pair_id, committed, owner.committed)
        self.owners[pair_id] = owner
        self._broken.pop(pair_id, None)
        learnt = owner.learner.learnt
        self.watch.pair_taken(pair_id, lease.fence, learnt.served.version, len(learnt.state.keys))
