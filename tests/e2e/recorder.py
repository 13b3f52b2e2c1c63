"""Writes down a stream while a learner trims it."""

from __future__ import annotations

import threading

from accord.learner.pair_learner import Entry
from accord.learner.store import Store, connect


class Recorder:
    """Reads every entry of a pair's stream before the learner, which waits for a tick to close, can have trimmed it."""

    def __init__(self, url: str, pair_id: str) -> None:
        self.entries: list[Entry] = []
        self._pair_id = pair_id
        self._store = Store(connect(url, role="recorder"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder")
        self._thread.start()

    def close(self) -> list[Entry]:
        """Ends the recording and returns it."""
        self._over.set()
        self._thread.join()
        self._store.close()
        return self.entries

    def _run(self) -> None:
        while True:
            over = self._over.is_set()
            last = self.entries[-1][0] if self.entries else "0-0"
            self.entries += self._store.read(self._pair_id, last, 10_000)
            if over:
                return
            self._over.wait(0.02)
