"""Looks after what others than a learner may break in a pair's keys, and what no commit would mend by itself."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable

from ..logs import event
from ..pair_learner import Published
from ..state_codec import Learnt
from ..store import Lease, Store, StoreError, StoreUnavailableError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0


class Repair:
    """Looks at a pair's keys when it is taken, and about once a minute after that.

    * A stream whose last id was set to the end of time takes no entry any more, however empty it is.
    * Coefficients may be deleted, or evicted by a store that may evict: engines that start then would be served the
      cold start until traffic changes, and nobody would be told.

    Args:
        store: where the pair lives; lease: of its owner.
        clock: seconds.

    Attributes:
        next_s: when it looks again.
    """

    def __init__(self, store: Store, lease: Lease, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self.next_s = clock()

    def look(self, learnt: Learnt, limit_ms: int, now_ms: int) -> list[Published]:
        """Mends the stream, and returns what must be published again; nothing at most times.

        Args:
            learnt: of the pair.
            limit_ms: ids from here on were given by nobody's clock.
            now_ms: the pair's time.

        Raises:
            StoreUnavailableError: the store is away.
        """
        if self._clock() < self.next_s:
            return []
        self.next_s = self._clock() + LOOK_EVERY_S * random.uniform(0.8, 1.0)
        pair_id = self._lease.pair_id
        try:
            if self._store.reopen(self._lease, limit_ms, now_ms):
                why = "its last id lay in the future"
                event(log, "stream opened again", level=logging.WARNING, pair=pair_id, reason=why)
            if not learnt.served.version or self._store.is_served(pair_id):
                return []
        except StoreUnavailableError:
            raise
        except StoreError as error:
            # A key of another type, or a right that is missing: learning does not depend on it.
            event(log, "keys not looked at", level=logging.WARNING, pair=pair_id, reason=str(error))
            return []
        event(log, "coefficients were lost", level=logging.WARNING, pair=pair_id, reason="what was learnt is published")
        history = {"cause": "restored", "version": learnt.served.version, "published_ms": learnt.served.published_ms}
        return [Published(learnt.served, json.dumps(history, separators=(",", ":")).encode())]
