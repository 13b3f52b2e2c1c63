"""Signals that end a process."""

from __future__ import annotations

import subprocess
import sys

BUSY = """
import signal, threading
from accord.learner.signals import when_told

seen, waits = threading.Event(), 0
when_told(seen.set, [signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0003)
while waits < 2_000:
    waits += seen.wait(0.0001)
    seen.clear()
signal.setitimer(signal.ITIMER_REAL, 0.0)
"""


def test_a_signal_at_any_moment_is_heard() -> None:
    """A main thread that does nothing but wait for the event that the signal sets never hangs on the event's lock."""
    assert subprocess.run([sys.executable, "-c", BUSY], timeout=120.0, check=False).returncode == 0
