"""What a step changed, for those who watch: taken beside the arithmetic, so that no stored byte depends on it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ..pair_learner import TICK_MS, PairLearner, Published, tick_of
from .watch import Publication, Step


class Progress:
    """Follows one pair in the hands of one learner.

    Args:
        pair: its id.
        learner: just loaded; what is due already counts from its watermark.
    """

    def __init__(self, pair: str, learner: PairLearner) -> None:
        self.pair, self.learner = pair, learner
        self._due_ms = _ms(learner.watermark) if learner.learnt.due else None
        self._triggers: list[int | None] = []
        self._noted: list[dict[str, Any]] = []
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        learner = self.learner
        self._began = time.monotonic()
        self._before = deepcopy(learner.counters)
        self._held = set(learner.learnt.held)
        self._after_ms = (tick_of(learner.watermark) + 1) * TICK_MS
        self._triggers, self._noted = [], []

    def advanced(self, published: Sequence[Published], newest: str | None = None) -> None:
        """Ticks were folded.

        Args:
            published: what the learner itself would publish; overrides may make something else of it.
            newest: id of the last entry among them, None without any.
        """
        entry_ms = None if newest is None else _ms(newest)
        for item in published:
            self._noted += json.loads(item.history).get("drift", ())
            self._triggers.append(self._due_ms if self._due_ms is not None else entry_ms)
            self._due_ms = None
        if not self.learner.learnt.due:
            self._due_ms = None
        elif self._due_ms is None:
            self._due_ms = entry_ms

    def committed(self, published: Sequence[Published], now_ms: int | None, commit_s: float) -> Step:
        """The step as it was committed.

        Args:
            published: what was published in this step.
            now_ms: the store's clock after the commit, None when it was not read.
            commit_s: seconds that the commit took.
        """
        explained = [json.loads(item.history) for item in published]
        # A prior that was carried over is published before any entry, and overrides may hide the first of several.
        triggers = [*[None] * len(published), *self._triggers][len(self._triggers) :]
        noted = self._noted + self.learner.learnt.drift
        held = self.learner.learnt.held
        return Step(
            pair=self.pair,
            before=self._before,
            after=deepcopy(self.learner.counters),
            published=[
                Publication(
                    version=item.table.version,
                    cause=str(history.get("cause", "refit")),
                    latency_s=None if now_ms is None or trigger is None else max(0.0, (now_ms - trigger) / 1000.0),
                    moved=len(history.get("moved", ())),
                    held=len(history.get("held", ())),
                )
                for item, history, trigger in zip(published, explained, triggers, strict=False)
            ],
            held={key: why for key, why in held.items() if key not in self._held},
            alarms=[item for item in noted if item["at_ms"] > self._after_ms],
            commit_s=commit_s,
            total_s=time.monotonic() - self._began,
        )


def _ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
