"""Waiting for what other threads and processes do, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 60.0
"""Generous, because machines that run tests are busy; nothing waits for longer than it must."""

LOOK_S = 0.01


def until(condition: Callable[[], object], seconds: float = DEADLINE_S, what: str = "the condition") -> float:
    """Returns once the condition holds, with the seconds that took.

    Raises:
        TimeoutError: when it does not come true in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_S)
    return time.monotonic() - began
