"""What engines write of themselves with every heartbeat, which nobody vouches for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accord.learner.bounds import EXACT

SILENT_MS = 15_000
"""An engine whose last heartbeat is older counts as silent: it beats every two seconds."""

STATES = ("starting", "fleet", "stale", "local", "observe", "frozen")
"""What engines call their own states."""
STOPPED, SILENT, UNKNOWN = "stopped", "silent", "unknown"
FOLLOWING = frozenset({"starting", "fleet", "stale", "observe"})
"""States in which an engine means to apply the version in force."""


def state_of(status: Mapping[str, Any], now_ms: int) -> str:
    """The state that everybody is shown: what an engine says, unless it stopped, fell silent, or says nothing usable.

    Args:
        status: as the engine wrote it.
        now_ms: the store's clock, by which engines stamp their reports.

    >>> state_of({"state": "fleet", "time_ms": 1000}, 2000), state_of({"state": "fleet", "time_ms": 1000}, 20_000)
    ('fleet', 'silent')
    """
    if status.get("stopped") is True:
        return STOPPED
    seen, state = whole(status.get("time_ms")), status.get("state")
    if seen is None:
        # Nobody knows whether it is still there.
        return UNKNOWN
    if now_ms - seen > SILENT_MS:
        return SILENT
    return state if isinstance(state, str) and state in STATES else UNKNOWN


def whole(value: object) -> int | None:
    """A number that an engine wrote, from 0 to 2^53 - 1, or None for anything else.

    >>> whole(7), whole(True), whole(-1), whole("7")
    (7, None, None, None)
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EXACT else None
