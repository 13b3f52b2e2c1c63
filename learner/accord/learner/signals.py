"""Signals that end a process, where no lock can be held."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

ENDING = (signal.SIGTERM, signal.SIGINT)


def when_told(stop: Callable[[], object], numbers: Sequence[signal.Signals] = ENDING) -> None:
    """Calls `stop` on a thread of its own when one of these signals comes; to be called from the main thread.

    A handler runs between any two steps of the main thread. One that sets an event which the main thread is about to
    wait for finds the event's lock taken, by the very thread that it runs on, and the process hangs for good.
    """
    asked: SimpleQueue[None] = SimpleQueue()

    def listen() -> None:
        while True:
            asked.get()
            stop()

    threading.Thread(target=listen, name="accord-signals", daemon=True).start()
    for number in numbers:
        # Filling this queue is the one thing that the standard library promises to be safe in a handler.
        signal.signal(number, lambda *_: asked.put(None))
