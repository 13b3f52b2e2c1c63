"""A real store, learner process and api, ten honest engines, and a second learner that sees only what these sent."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from tests.api.harness import RunningApi
from tests.learner.fleet import KEYS, KNOTS, PROBES, SyntheticEngine, Traffic
from tests.learner.fleet import K as POSITIONS
from tests.waiting import until

from accord.api import Settings
from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.child import Child
from accord.learner.coefficients import CoefficientTable
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, Entry, PairLearner, tick_of
from accord.learner.sequences import Sequences
from accord.learner.state_codec import decode_learnt
from accord.learner.store import Store, StoredState, connect
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

PAIR = Pair("org/Target-8B", "org/Draft-1B", Method.EAGLE, DraftSampling.GREEDY, POSITIONS)
EVIL = "evil/0"
EVIL_BOOT = "00000000deadbeef"
MOST = 0.01
"""By how much a served probability may differ from what the honest engines alone would be served."""


@dataclass
class Stage:
    """The service, and who talks to it.

    Attributes:
        store, api: real; learner: a process with its metrics at `metrics_url`.
        honest: entries of honest engines; marked: what was stored when the attack began, and how many there were then.
    """

    store: Store
    api: RunningApi
    learner: Child
    metrics_url: str
    engines: list[SyntheticEngine]
    honest: list[Entry] = field(default_factory=list)
    last: str = "0-0"
    evil_seq: int = 0
    marked: tuple[StoredState, int] = (StoredState(), 0)

    @property
    def pair_id(self) -> str:
        """The pair under attack."""
        return PAIR.id

    def served(self) -> CoefficientTable:
        """What engines are served now, by the api."""
        answer = self.api.get(f"/v1/pairs/{PAIR.id}/coefficients")
        assert answer.status_code == 200, answer.text
        return CoefficientTable.from_json(answer.content)

    def rounds(self, count: int = 1, steps: int = 20) -> None:
        """Every honest engine ends so many rounds at what it is served, and sends them."""
        for _ in range(count):
            table = self.served()
            for number, engine in enumerate(self.engines):
                engine.accumulator.apply([table.row(key) for key in KEYS])
                summary = engine.round(Traffic(), steps)
                self.good(replace(summary, pair=PAIR.id, boot=f"{number:016x}"))

    def good(self, summary: RoundSummary) -> bytes:
        """Sends an honest summary."""
        payload = encode(summary)
        self.last = self.store.append(PAIR.id, payload)
        self.honest.append((self.last, payload))
        return payload

    def bad(self, payload: bytes) -> None:
        """Sends anything."""
        self.last = self.store.append(PAIR.id, payload)

    def evil(self, summary: RoundSummary, engine: str = EVIL, boot: str = EVIL_BOOT) -> RoundSummary:
        """The next summary of the attacker, made of another."""
        self.evil_seq += 1
        return replace(summary, pair=PAIR.id, engine=engine, boot=boot, first_seq=self.evil_seq, last_seq=self.evil_seq)

    def sample(self, seed: int = 99) -> RoundSummary:
        """A round of an engine like the others."""
        table = self.served()
        engine = SyntheticEngine("spare/0", seed)
        engine.accumulator.apply([table.row(key) for key in KEYS])
        for _ in range(2):
            found = engine.round(Traffic(), 20)
        return replace(found, pair=PAIR.id)

    def settled(self) -> None:
        """Returns once everything sent was learnt, and what that taught is served."""
        until(lambda: _at(self.store.load(PAIR.id).watermark) >= _at(self.last), what="the learner lags")

        def quiet() -> bool:
            body = self.store.load(PAIR.id).body
            return body is not None and not decode_learnt(body).due

        until(quiet, what="a publication waits")
        version = self.store.load(PAIR.id).version
        until(lambda: self.served().version >= version, what="the api lags")

    def mark(self) -> None:
        """An attack begins."""
        self.settled()
        self.marked = self.store.load(PAIR.id), len(self.honest)

    def control(self) -> CoefficientTable:
        """What would be served now if only the honest engines had sent anything since the attack began."""
        stored, count = self.marked
        assert stored.body is not None
        known = decode_learnt(stored.body), Sequences.decode(stored.sequences), Counters.decode(stored.counters)
        learner, since = PairLearner(*known, stored.watermark), self.honest[count:]
        learner.advance(since, tick_of(since[-1][0]) + 8)
        return learner.learnt.served

    def moved(self) -> float:
        """The largest difference of a served probability from the control's."""
        return float(np.abs(probabilities(self.served()) - probabilities(self.control())).max())

    def counters(self) -> dict[str, Any]:
        """The pair's counters, as the api tells them."""
        found: dict[str, Any] = self.detail()["counters"]
        return found

    def detail(self) -> dict[str, Any]:
        """The pair, as the api tells it."""
        answer = self.api.get(f"/v1/pairs/{PAIR.id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def metric(self, name: str, **labels: str) -> float:
        """A counter of the learner's own metrics page, 0 where it has none."""
        text = httpx.get(f"{self.metrics_url}/metrics", trust_env=False, timeout=10.0).text
        found = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if all(word in line for word in wanted))

    def learner_mb(self) -> float:
        """Resident memory of the learner process."""
        return float(psutil.Process(self.learner.pid).memory_info().rss) / 1e6

    def redis_mb(self) -> float:
        """Memory that the store holds."""
        return float(self.store.client.info("memory")["used_memory"]) / 1e6


def probabilities(table: CoefficientTable) -> Array:
    """What is served for every honest workload at some features, [W, K, probes]."""
    basis = SplineBasis(KNOTS)
    rows = [table.row(key) for key in KEYS]
    return np.stack([sigmoid((basis.expand(PROBES) @ r.slopes)[None] + r.intercepts[:, None]) for r in rows])


@contextmanager
def staged(folder: Path, engines: int = 10, warm: int = 20) -> Iterator[Stage]:
    """The service with a fleet that has reported for a while."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        store = stack.enter_context(Store(connect(server.url, role="test")))
        environment = {
            "ACCORD_REDIS_URL": server.url,
            "ACCORD_LEARNER_METRICS_PORT": "0",
            "ACCORD_LEARNER_LEASE_MS": "3000",
        }
        argv = [sys.executable, "-m", "accord.learner"]
        learner = Child("learner", argv, folder / "learner.log", environment=environment)
        api = stack.enter_context(RunningApi(Settings(redis_url=server.url)))
        store.register(PAIR, KNOTS)
        learner.start()
        stack.callback(learner.stop)
        fleet = [SyntheticEngine(f"host-{number}/0", number) for number in range(engines)]
        stage = Stage(store, api, learner, _metrics_url(learner.log), fleet)
        for _ in range(warm):
            stage.rounds()
            # A tick for each round, so that engines apply what was learnt of the one before.
            begin = time.monotonic()
            until(lambda began=begin: time.monotonic() - began > TICK_MS / 1000.0, what="time stands still")  # type: ignore[misc]
        stage.settled()
        # As a Prometheus would have done long before.
        assert api.get("/metrics").status_code == 200
        yield stage


def _metrics_url(log: Path) -> str:
    found: list[str] = []

    def told() -> bool:
        found[:] = re.findall(r"http://127\.0\.0\.1:[0-9]+", log.read_text()) if log.exists() else []
        return bool(found)

    until(told, what="the learner does not say where its metrics are")
    return found[0]


def _at(entry_id: str) -> tuple[int, int]:
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number)
