"""Everything that runs beside the store: learners, APIs, engines, and the proxies between them."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import _free_port
from accord.learner.pair import Pair

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Size:
    """How much of everything.

    Args:
        engines: in all, spread over `processes` and over the pairs.
        rate: decode steps a second of each engine.
        round_steps: decode steps of a round.
        queue_rounds: rounds that an engine keeps unmerged.
        pace: how long faults last, 1 being seconds.
    """

    engines: int = 20
    processes: int = 4
    learners: int = 2
    apis: int = 2
    pairs: int = 2
    rate: float = 8.0
    round_steps: int = 4
    queue_rounds: int = 8
    pace: float = 1.0


@dataclass
class Stack:
    """The processes of a campaign.

    Args:
        folder: logs and the ledger.
        size: how many.
        pairs: what is learnt.
        redis_url: of the store itself.
        proxies: whether clients may reach the store through proxies (one server only).
    """

    folder: Path
    size: Size
    pairs: list[Pair]
    redis_url: str
    proxied: TcpProxy | None = None
    learner_proxy: TcpProxy | None = None
    api_proxy: TcpProxy | None = None
    learners: list[Child] = field(default_factory=list)
    apis: list[Child] = field(default_factory=list)
    fleets: list[Child] = field(default_factory=list)
    http: list[TcpProxy] = field(default_factory=list)
    control: Child | None = None
    stops: list[tuple[str, float, int | None]] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """Where engines count."""
        return self.folder / "ledger"

    @property
    def control_ledger(self) -> Path:
        """Where engines without us count."""
        return self.folder / "control"

    def start(self) -> None:
        """Starts it all and waits until the APIs answer."""
        self.ledger.mkdir(parents=True)
        self.control_ledger.mkdir()
        for index in range(self.size.learners):
            self.learners.append(self._learner(index))
        for index in range(self.size.apis):
            port = _free_port()
            self.apis.append(self._api(index, port))
            self.http.append(TcpProxy("127.0.0.1", port))
        for index in range(self.size.processes):
            self.fleets.append(self._fleet(index))
        for child in [*self.learners, *self.apis]:
            child.start()
        for proxy in self.http:
            until(lambda proxy=proxy: answers(proxy), what="an API")  # type: ignore[misc]
        self.control = self._fleet(self.size.processes, control=True)
        for child in [*self.fleets, self.control]:
            child.start()
        until(lambda: len(list(self.ledger.glob("*.json"))) == self.size.engines, 60.0, "every engine")
        until(lambda: any(self.control_ledger.glob("*.json")), 60.0, "the control")

    def close(self) -> None:
        """Ends whatever still runs."""
        for child in [*self.fleets, self.control, *self.apis, *self.learners]:
            if child is not None:
                child.kill()
        for proxy in [*self.http, self.proxied, self.learner_proxy, self.api_proxy]:
            if proxy is not None:
                proxy.close()

    def end(self, child: Child, within_s: float) -> int | None:
        """SIGTERM, and how long it took to end; killed when it did not."""
        begin = time.monotonic()
        child.signal(signal.SIGTERM)
        status = child.wait(within_s)
        self.stops.append((child.name, time.monotonic() - begin, status))
        if status is None:
            # Engines then write where their threads stand.
            if child in self.fleets:
                child.signal(signal.SIGUSR1)
                child.wait(1.0)
            child.kill()
        return status

    def _url(self, proxy: TcpProxy | None) -> str:
        return proxy.url if proxy is not None else self.redis_url

    def _learner(self, index: int) -> Child:
        environment = {"ACCORD_REDIS_URL": self._url(self.learner_proxy), "ACCORD_LEARNER_LEASE_MS": "1500"}
        return self._child("learner", index, ["-m", "accord.learner"], environment)

    def _api(self, index: int, port: int) -> Child:
        return self._child(
            "api", index, ["-m", "accord.api", "--port", str(port)], {"ACCORD_REDIS_URL": self._url(self.api_proxy)}
        )

    def _fleet(self, index: int, control: bool = False) -> Child:
        engines: list[dict[str, Any]] = []
        for number in range(0 if control else index, self.size.engines, self.size.processes):
            api = f"http://127.0.0.1:{self.http[number % len(self.http)].port}"
            pair = self.pairs[number % len(self.pairs)].to_dict()
            engines.append({"name": f"host-{number}/0", "api_url": api, "pair": pair, "seed": number})
        config = {
            "process": f"fleet-{index}",
            "control": control,
            "engines": engines,
            "redis_url": self._url(self.proxied),
            "ledger": str(self.control_ledger if control else self.ledger),
            "rate": self.size.rate,
            "round_steps": [self.size.round_steps],
            "queue_rounds": self.size.queue_rounds,
            "local_after_s": 3.0,
            "stop_s": 20.0,
        }
        return self._child("fleet", index, ["-m", "tests.chaos.fleet", json.dumps(config)], {})

    def _child(self, kind: str, index: int, argv: list[str], environment: dict[str, str]) -> Child:
        name = f"{kind}-{index}"
        log = self.folder / f"{name}.log"
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return Child(name, [sys.executable, *argv], log, environment=one | environment, cwd=ROOT)


def answers(proxy: TcpProxy) -> bool:
    """Whether an API says that it is ready."""
    try:
        return httpx.get(f"http://127.0.0.1:{proxy.port}/readyz", trust_env=False, timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False


def pairs_of(pair: Pair, count: int) -> list[Pair]:
    """Pairs of one shape under several names, so that there is more than one to own."""
    values = pair.to_dict()
    return [Pair.from_dict({**values, "target": f"{values['target']}-{index}"}) for index in range(count)]
