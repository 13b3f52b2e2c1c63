"""Several replay engines in one process, each a real agent with its own boot: `python -m tests.chaos.fleet JSON`."""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.hooks.agent import Agent
from accord.hooks.engine import EngineSide
from accord.hooks.outbox import RoundParts
from accord.hooks.replay import Mix, ReplayEngine
from accord.hooks.settings import AgentSettings, Mode
from accord.learner.basis import Array
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import Pair
from accord.learner.signals import when_told

from .ledger import Book


class BookedAgent(Agent):
    """An agent whose rounds are written down before they are put.

    Attributes:
        control: an engine that has neither threads nor a service, and keeps nothing: how fast steps are without us.
    """

    book: Book
    put_rounds = 0
    control = False

    def put(self, parts: RoundParts) -> bool:
        """Books, then puts."""
        if self.control:
            return True
        self.book.round(self.put_rounds + 1, parts.labels)
        done = super().put(parts)
        self.put_rounds += done
        return done


class BookedEngine(ReplayEngine):
    """A replay engine that writes down every step."""

    def __init__(self, agent: BookedAgent, side: EngineSide, trace: Trace, seed: int, rate: float) -> None:
        super().__init__(side, trace, Mix(seed=seed), rate, loop=True, observer=self._count)
        self._agent, self._engine = agent, side

    def _step(self, lap: int, batch: int) -> None:
        begin = time.thread_time()
        super()._step(lap, batch)
        self._agent.book.step(time.monotonic(), self.times[-1], time.thread_time() - begin)

    def _count(self, trace: Trace, rows: npt.NDArray[np.intp], predicted: Array) -> None:
        self._agent.book.set("observed", self._engine.labels)
        self._agent.book.set("rounds_sent", self._agent._outbox._sent.rounds)


def build(config: dict[str, Any], trace: Trace) -> list[tuple[BookedAgent, BookedEngine]]:
    """The engines of one process."""
    made, control = [], config["control"]
    for item in config["engines"]:
        settings = AgentSettings(
            redis_url=None if control else config["redis_url"],
            api_url=None if control else item["api_url"],
            mode=Mode.OBSERVE if control else Mode.FLEET,
            engine=item["name"],
            poll_wait_s=4.0,
            round_steps=tuple(config["round_steps"]),
            queue_rounds=config["queue_rounds"],
            heartbeat_s=0.5,
            local_after_s=config["local_after_s"],
        )
        agent = BookedAgent(Pair.from_dict(item["pair"]), settings)
        agent.control = control
        agent.book = Book(Path(config["ledger"]), agent.boot, item["name"], agent.pair.id, config["process"])
        made.append((agent, BookedEngine(agent, EngineSide(agent), trace, item["seed"], config["rate"])))
    return made


def run(build: Callable[[dict[str, Any], Trace], Sequence[tuple[BookedAgent, BookedEngine]]]) -> int:
    """Builds engines as the command line says, and lets them replay until SIGTERM; 0 when everything was sent."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    faulthandler.register(signal.SIGUSR1)
    # Before anything is built: whoever is told to end while it starts ends in order, too.
    stop = threading.Event()
    when_told(stop.set)
    config = json.loads(sys.argv[1])
    running = build(config, Trace.bundled())
    threads = [threading.Thread(target=player.run, args=(None, stop)) for _, player in running]
    for agent, _ in running:
        agent.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = [finish(agent, player, config["stop_s"]) for agent, player in running]
    return 0 if all(sent) else 1


def finish(agent: BookedAgent, player: BookedEngine, stop_s: float) -> bool:
    """Ends one engine in order and books how that went."""
    player.close()
    agent.book.set("observed", player.status()["observed_labels"])
    agent.stop(stop_s)
    status = agent.status()
    agent.book.set("rounds_sent", status["rounds"]["sent"])
    agent.book.set("unsent", status["labels"]["put"] - status["labels"]["sent"])
    agent.book.set("stopped", 1)
    agent.book.close()
    return bool(status["labels"]["put"] == status["labels"]["sent"])


if __name__ == "__main__":
    sys.exit(run(build))
