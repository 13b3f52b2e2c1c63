"""What is soaked: a store, learners, APIs, engines that stay, and engines that come and go."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.chaos.stack import ROOT, pairs_of
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer, _free_port
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import Pair

STOP_S = 30.0
MAXMEMORY = "512mb"
"""What docker/compose.yaml gives by default."""


@dataclass(frozen=True)
class Size:
    """How much of everything.

    Args:
        engines: in all, half of them stay, two in a process; the others have a process each and are replaced.
        rate: decode steps a second of each engine.
        round_steps: decode steps of a round.
        churn_s: how long a replaced engine lives.
        a_new_one_s: how long a workload lasts that is not always there.
        history: publications of a pair that are kept.
        redis_options: more options of the store.
    """

    engines: int = 8
    learners: int = 2
    apis: int = 2
    pairs: int = 2
    rate: float = 2.0
    round_steps: int = 10
    churn_s: float = 300.0
    a_new_one_s: float = 60.0
    history: int = 200
    redis_options: tuple[str, ...] = ()


@dataclass
class Site:
    """Every process of a soak.

    Args:
        folder: logs, the ledger and the store's files.
    """

    folder: Path
    size: Size
    store: EmbeddedServer = field(init=False)
    pairs: list[Pair] = field(init=False)
    learners: list[Child] = field(default_factory=list)
    apis: list[Child] = field(default_factory=list)
    steady: list[Child] = field(default_factory=list)
    passing: list[Child] = field(default_factory=list)
    api_urls: list[str] = field(default_factory=list)
    learner_urls: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    boots: int = 0

    def __post_init__(self) -> None:
        self.pairs = pairs_of(Trace.bundled().pair, self.size.pairs)
        options = ["--maxmemory", MAXMEMORY, *self.size.redis_options]
        self.store = EmbeddedServer(self.folder / "store", options=options)

    @property
    def ledger(self) -> Path:
        """Where engines count."""
        return self.folder / "ledger"

    def start(self) -> None:
        """Starts it all and waits until the APIs answer."""
        self.ledger.mkdir(parents=True)
        self.store.start()
        for index in range(self.size.learners):
            port = _free_port()
            extra = {"ACCORD_LEARNER_METRICS_PORT": str(port), "ACCORD_LEARNER_HISTORY_COUNT": str(self.size.history)}
            self.learners.append(self._service("learner", index, [], extra))
            self.learner_urls.append(f"http://127.0.0.1:{port}")
        for index in range(self.size.apis):
            port = _free_port()
            self.apis.append(self._service("api", index, ["--port", str(port)], {}))
            self.api_urls.append(f"http://127.0.0.1:{port}")
        for child in [*self.learners, *self.apis]:
            child.start()
        for url in self.api_urls:
            until(lambda url=url: answers(f"{url}/readyz"), what="an API")  # type: ignore[misc]
        for url in self.learner_urls:
            until(lambda url=url: answers(f"{url}/metrics"), what="a learner")  # type: ignore[misc]
        stay = self.size.engines // 2
        for index in range(0, stay, 2):
            self.steady.append(self._engines(f"steady-{index // 2}", list(range(index, min(index + 2, stay)))))
        for child in self.steady:
            child.start()
        for _ in range(stay, self.size.engines):
            self.passing.append(self._another())

    def churn(self) -> None:
        """Ends the engine that came first, in order, and starts another one under another name."""
        gone = self.passing.pop(0)
        self._end(gone)
        self.passing.append(self._another())

    def end_engines(self) -> None:
        """Ends every engine in order."""
        for child in [*self.passing, *self.steady]:
            self._end(child)

    def close(self) -> None:
        """Ends whatever still runs."""
        for child in [*self.passing, *self.steady, *self.apis, *self.learners]:
            child.stop()
        self.store.stop()

    def processes(self) -> dict[str, int]:
        """Name -> process id of everything that runs for the whole soak or until it is replaced."""
        found = {child.name: child.pid for child in [*self.learners, *self.apis, *self.steady] if child.alive}
        found |= {f"passing-{slot}": child.pid for slot, child in enumerate(list(self.passing)) if child.alive}
        return found | {"store": self.store.pid}

    def _end(self, child: Child) -> None:
        child.stop(STOP_S)
        # One that was started only now may not have got as far as to listen.
        if child.returncode not in (0, -15):
            self.wrong.append(f"{child.name} ended with {child.returncode}: {child.tail(5)}")

    def _another(self) -> Child:
        self.boots += 1
        child = self._engines(f"passing-{self.boots}", [self.size.engines + self.boots])
        child.start()
        return child

    def _engines(self, name: str, numbers: list[int]) -> Child:
        engines: list[dict[str, Any]] = [
            {
                "name": f"host-{number}/0",
                "api_url": self.api_urls[number % len(self.api_urls)],
                "pair": self.pairs[number % len(self.pairs)].to_dict(),
                "label": f"job-{number}",
                "seed": number,
            }
            for number in numbers
        ]
        config = {
            "process": name,
            "engines": engines,
            "redis_url": self.store.url,
            "ledger": str(self.ledger),
            "rate": self.size.rate,
            "round_steps": [self.size.round_steps],
            "a_new_one_s": self.size.a_new_one_s,
            "stop_s": STOP_S / 2,
        }
        return self._child(name, ["-m", "tests.soak.engine", json.dumps(config)], {})

    def _service(self, kind: str, index: int, arguments: list[str], extra: dict[str, str]) -> Child:
        environment = {"ACCORD_REDIS_URL": self.store.url, **extra}
        return self._child(f"{kind}-{index}", ["-m", "tests.soak.shortened", kind, *arguments], environment)

    def _child(self, name: str, argv: list[str], environment: dict[str, str]) -> Child:
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return Child(
            name, [sys.executable, *argv], self.folder / f"{name}.log", environment=one | environment, cwd=ROOT
        )


def answers(url: str) -> bool:
    """Whether something is there and well."""
    try:
        return httpx.get(url, trust_env=False, timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
