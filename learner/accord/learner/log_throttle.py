"""Keeps a log short that others could fill."""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 60.0
"""What anybody may cause again and again is logged when it first comes; then at most once in this time."""
MAX_KINDS = 4096
"""Kinds that are remembered for a minute; what is beyond them is one more kind, whatever it is."""

_BEYOND = object()


class LogThrottle:
    """Lets the first of a kind through at once, and then one word a minute with how many there were.

    Args:
        clock: seconds.

    >>> seconds = [0.0]
    >>> throttle = LogThrottle(lambda: seconds[0])
    >>> throttle.count("a", 2), throttle.count("a", 3)
    (2, 0)
    >>> seconds[0] = 60.0
    >>> throttle.count("a", 1)
    4
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[object, tuple[float, int]] = {}

    def count(self, kind: object, number: int = 1) -> int:
        """How many of a kind are to be told of now, these included; 0 for none yet."""
        now = self._clock()
        if kind not in self._said and len(self._said) >= MAX_KINDS:
            self._said = {other: told for other, told in self._said.items() if now - told[0] < QUIET_S}
            if len(self._said) >= MAX_KINDS:
                kind = _BEYOND
        at, kept = self._said.get(kind, (float("-inf"), 0))
        if now - at < QUIET_S:
            self._said[kind] = (at, kept + number)
            return 0
        self._said[kind] = (now, 0)
        return kept + number
