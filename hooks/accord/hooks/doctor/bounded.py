"""Runs checks that may hang, and goes on without them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from .report import Check, fail

Checks = Callable[[], Iterator[Check]]

_END = object()


def bounded(name: str, checks: Checks, seconds: float) -> Iterator[Check]:
    """The findings of a group, each of which must come within `seconds` of the one before.

    A group that hangs (name look-ups know no timeout) or breaks ends with a failure under the group's name; what it had
    found before stays.

    >>> import time
    >>> next(bounded("slow", lambda: iter([time.sleep(1)]), 0.01)).found
    'no answer within 0.01 s'
    """
    results: queue.SimpleQueue[Check | BaseException | object] = queue.SimpleQueue()

    def run() -> None:
        try:
            for check in checks():
                results.put(check)
            results.put(_END)
        except Exception as error:  # noqa: BLE001  # a diagnosis reports what breaks, and goes on
            results.put(error)

    # Nobody waits for a daemon that hangs, not even the interpreter at its end.
    threading.Thread(target=run, name=f"accord-doctor-{name}", daemon=True).start()
    while True:
        try:
            item = results.get(timeout=seconds)
        except queue.Empty:
            yield fail(name, f"no answer within {seconds:g} s", "the rest of this group was not checked; see --timeout")
            return
        if isinstance(item, Check):
            yield item
            continue
        if isinstance(item, BaseException):
            yield fail(name, f"{type(item).__name__}: {item}", "the rest of this group was not checked")
        return
