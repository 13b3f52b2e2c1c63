"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Exponential with full jitter: a fleet that lost the same server does not come back in one wave.

    Args:
        base_s, cap_s: upper bound of the first wait, and of every wait.
        uniform: draws from [low, high]; a seam for tests.

    >>> backoff = Backoff(0.5, 3.0, uniform=lambda low, high: high)
    >>> [backoff.next() for _ in range(4)]
    [0.5, 1.0, 2.0, 3.0]
    """

    def __init__(self, base_s: float, cap_s: float, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._base, self._cap, self._uniform = base_s, cap_s, uniform
        self._bound = base_s

    def next(self) -> float:
        """Seconds to wait now; the bound doubles with every call."""
        bound, self._bound = self._bound, min(2.0 * self._bound, self._cap)
        return self._uniform(0.0, bound)

    def reset(self) -> None:
        """The next wait is short again."""
        self._bound = self._base
