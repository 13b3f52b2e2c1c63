"""What engines write of themselves with every heartbeat, which nobody vouches for."""

from __future__ import annotations

from accord.learner.bounds import EXACT

SILENT_MS = 15_000
"""An engine whose last heartbeat is older counts as silent: it beats every two seconds. The page says the same."""


def whole(value: object) -> int | None:
    """A number that an engine wrote, from 0 to 2^53 - 1, or None for anything else.

    >>> whole(7), whole(True), whole(-1), whole("7")
    (7, None, None, None)
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EXACT else None
