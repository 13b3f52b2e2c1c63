"""Replay engines of one process, whose traffic changes as they run: `python -m tests.soak.engine JSON`."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos.fleet import BookedAgent, BookedEngine, run
from tests.chaos.ledger import Book

from accord.hooks.engine import EngineSide
from accord.hooks.settings import AgentSettings
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import Pair


class ChangingEngine(BookedEngine):
    """One of its workloads ends now and then, and another one takes its place.

    Args:
        label: what new workloads are called after; a_new_one_s: how long each of them lasts.
    """

    def __init__(
        self, agent: BookedAgent, trace: Trace, seed: int, rate: float, label: str, a_new_one_s: float
    ) -> None:
        super().__init__(agent, EngineSide(agent), trace, seed, rate)
        # Of a stand-in, not of the product; filling it would look like growth.
        self.times = deque(maxlen=100)
        self._label, self._a_new_one_s = label, a_new_one_s
        self._began, self._number = time.monotonic(), -1

    def _step(self, lap: int, batch: int) -> None:
        number = int((time.monotonic() - self._began) / self._a_new_one_s)
        if number != self._number:
            self._number = number
            *stay, last = self.trace.workloads
            fresh = f"{self._label}-{number}:{last.partition(':')[2]}"
            self._trace = replace(self.trace, workloads=(*stay, fresh))
        super()._step(lap, batch)


def build(config: dict[str, Any], trace: Trace) -> list[tuple[BookedAgent, BookedEngine]]:
    """The engines of one process."""
    made = []
    for item in config["engines"]:
        settings = AgentSettings(
            redis_url=config["redis_url"],
            api_url=item["api_url"],
            engine=item["name"],
            round_steps=tuple(config["round_steps"]),
        )
        agent = BookedAgent(Pair.from_dict(item["pair"]), settings)
        agent.book = Book(Path(config["ledger"]), agent.boot, item["name"], agent.pair.id, config["process"])
        engine = ChangingEngine(agent, trace, item["seed"], config["rate"], item["label"], config["a_new_one_s"])
        made.append((agent, engine))
    return made


if __name__ == "__main__":
    sys.exit(run(build))
