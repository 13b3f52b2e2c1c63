"""The engine's own refits, on a thread of their own: what is in force while the service is out of reach."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from accord.learner.coefficients import CoefficientTable
from accord.learner.errors import InvalidValue
from accord.learner.local import LocalFit
from accord.learner.summary import RoundSummary

log = logging.getLogger(__name__)

MAX_WAITING = 512
WARM_S = 10.0
"""While the service answers, the fit follows it this often, so that it is ready when the service goes."""

TICK_S = 0.5


class Fitter:
    """Follows evidence and served tables in their order, and serves own tables while `wanted` says so.

    A served table knows everything sent before it, so the fit is rebased on it; evidence after it is folded on top. The
    switch to own refits therefore starts from the last served table plus what this engine saw since.

    Args:
        pair, k, knots: of the pair.
        wanted: whether own tables are wanted now; asked on the fitter's thread.
        clock: seconds, monotonic.

    Attributes:
        table: the own table in force, None while none is wanted. It carries the version of the last served table: own
            refits have no versions of their own, the state tells them apart.
        refits, failures: counters.
    """

    def __init__(
        self,
        pair: str,
        k: int,
        knots: tuple[float, ...],
        wanted: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pair, self._k, self._knots = pair, k, knots
        self._wanted, self._clock = wanted, clock
        self._inbox: deque[RoundSummary | CoefficientTable] = deque(maxlen=MAX_WAITING)
        self._fit = LocalFit(pair, k, knots)
        self._before: RoundSummary | None = None
        self._served: CoefficientTable | None = None
        self._after: RoundSummary | None = None
        self._base: CoefficientTable | None = None
        self._version = 0
        self._settled_at = clock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_served: CoefficientTable | None = None
        self.table: CoefficientTable | None = None
        self.refits = 0
        self.failures = 0

    def start(self) -> None:
        """Starts the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="accord-fitter", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ends the thread; False when it did not end in time."""
        self._stopping.set()
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def offer(self, item: RoundSummary | CoefficientTable) -> None:
        """Hands over a round of this engine, or a served table; never waits. The oldest of too many are dropped."""
        self._inbox.append(item)
        self._wake.set()

    def tick(self) -> None:
        """One turn of the thread: takes what was offered, and refits if it is time; never raises."""
        try:
            wanted = self._wanted()
            while self._inbox:
                self._absorb(self._inbox.popleft())
            waiting = any(item is not None for item in (self._before, self._served, self._after))
            settled = waiting and (wanted or self._clock() - self._settled_at >= WARM_S)
            if settled:
                self._settle()
            if not wanted:
                self.table = None
            elif settled or self.table is None:
                self.table = self._base or self._fit.table(self._version)
        except Exception:
            self.failures += 1
            log.exception("accord: own refit failed; it starts again from the last served table")
            self._restart()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self.tick()
            # While the service answers nobody waits for a refit: ticks are then spaced, whatever is offered.
            if self._wanted():
                self._wake.wait(TICK_S)
            else:
                self._stopping.wait(TICK_S)

    def _absorb(self, item: RoundSummary | CoefficientTable) -> None:
        if isinstance(item, CoefficientTable):
            self._before, self._after = self._joined(self._before, self._after), None
            self._served = self._last_served = item
        else:
            self._after = self._joined(self._after, item)

    def _joined(self, earlier: RoundSummary | None, later: RoundSummary | None) -> RoundSummary | None:
        if earlier is None or later is None:
            return later if earlier is None else earlier
        try:
            return earlier.merge(later)
        except InvalidValue:
            # A round between them was lost: what came before it is folded now instead.
            self._fold(earlier)
            return later

    def _settle(self) -> None:
        before, served, after = self._before, self._served, self._after
        self._before = self._served = self._after = None
        self._settled_at = self._clock()
        self._fold(before)
        if served is not None:
            self._fit.rebase(served)
            # Until there is evidence on top of it, nothing is better than the served table itself.
            self._base, self._version = served, served.version
        self._fold(after)

    def _fold(self, summary: RoundSummary | None) -> None:
        if summary is not None:
            self._fit.fold(summary)
            self._base = None
            self.refits += 1

    def _restart(self) -> None:
        self._fit = LocalFit(self._pair, self._k, self._knots)
        if self._last_served is not None:
            self._fit.rebase(self._last_served)
            self._version = self._last_served.version
        self._before = self._after = None
        self._base = self._last_served
