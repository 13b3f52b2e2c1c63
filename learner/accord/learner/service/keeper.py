"""Renews leases while the learning thread is busy with one long step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..store import Lease, Store, StoreError

LONGEST_STEP_S = 60.0
"""A step that takes longer is taken for one that will never end: its leases lapse."""


class LeaseKeeper:
    """A tick is learnt in one go, and may hold so much that a lease lapses meanwhile.

    Then the commit is refused, whoever takes the pair next meets the same tick, and nobody ever gets past it. So a
    thread of its own renews what is held, for as long as one step may take.

    Args:
        lease_ms: renewed three times as often.
        held: the leases, and the store they are in; called on the keeper's thread.
    """

    def __init__(self, lease_ms: int, held: Callable[[], tuple[Store, list[Lease]]]) -> None:
        self._lease_ms, self._held = lease_ms, held
        self._busy_since: float | None = None
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keeps a thread while the body runs."""
        thread = threading.Thread(target=self._run, name="accord-leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around every step."""
        self._busy_since = time.monotonic()
        try:
            yield
        finally:
            self._busy_since = None

    def _run(self) -> None:
        while not self._ended.wait(self._lease_ms / 3000.0):
            since = self._busy_since
            if since is None or not self._lease_ms / 6000.0 < time.monotonic() - since < LONGEST_STEP_S:
                continue
            # Who holds what is for the learning thread to judge, from the commit's answer.
            with suppress(StoreError, RuntimeError):
                store, leases = self._held()
                store.renew_all(leases, self._lease_ms)
