"""An operator at work on a running fleet: pin, what-if, expiry, rollback, and the trail of it all."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.waiting import until

from accord.hooks.agent import Agent
from accord.hooks.demo.stack import Stack
from accord.hooks.engine import EngineSide
from accord.hooks.replay import Mix, ReplayEngine
from accord.hooks.settings import AgentSettings
from accord.learner.coefficients import CoefficientTable
from accord.learner.evaluate.trace import Trace

KEY = "code:greedy"
ENGINES = 3
WITHIN_S = 1.0
"""The promise of an override: this long after the answer every engine applies it."""


class Fleet:
    """Replay engines in threads, with rounds of five steps, so that there is a boundary every few milliseconds."""

    def __init__(self, trace: Trace, stack: Stack) -> None:
        self.agents: list[Agent] = []
        self._players: list[ReplayEngine] = []
        self._stop = threading.Event()
        for index in range(ENGINES):
            settings = AgentSettings(
                redis_url=stack.redis_url,
                api_url=stack.api_url,
                engine=f"host-{index}/0",
                round_steps=(5,),
                heartbeat_s=0.05,
            )
            agent = Agent(trace.pair, settings)
            self.agents.append(agent)
            player = ReplayEngine(EngineSide(agent), trace, Mix(seed=index), rate=60.0, loop=True)
            self._players.append(player)
        self._threads = [threading.Thread(target=player.run, args=(None, self._stop)) for player in self._players]

    def __enter__(self) -> Fleet:
        for agent in self.agents:
            agent.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for agent, player in zip(self.agents, self._players, strict=True):
            player.close()
            agent.stop(10.0)

    def applies(self, wanted: Callable[[CoefficientTable], bool]) -> bool:
        """Whether every engine predicts with such a table."""
        return all(wanted(agent.applied.table) for agent in self.agents)


class Operator:
    """Somebody with curl."""

    def __init__(self, url: str, pair: str) -> None:
        self.http = httpx.Client(timeout=20.0, trust_env=False)
        self._base = f"{url}/v1/pairs/{pair}"

    def ask(self, method: str, path: str = "", **values: Any) -> httpx.Response:
        """One request about the pair."""
        return self.http.request(method, self._base + path, **values)

    def get(self, path: str = "", **query: Any) -> Any:
        """What a GET answers."""
        answer = self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def change(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Changes what was just read."""
        etag = self.ask("GET", "/overrides").headers["etag"]
        answer = self.ask(method, path, json=body, headers={"If-Match": etag})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def echoed(self) -> list[int]:
        """The versions that the engines say they apply."""
        return [engine["version"] or 0 for engine in self.get()["engines"]]


@contextmanager
def fleet(folder: Path) -> Iterator[tuple[Fleet, Operator]]:
    """A service and a fleet that have learnt and published something."""
    trace = Trace.bundled()
    with Stack(folder) as stack, Fleet(trace, stack) as running:
        operator = Operator(stack.api_url, trace.pair.id)
        with operator.http:
            until(lambda: operator.ask("GET").status_code == 200)
            until(lambda: operator.get(f"/workloads/{KEY}")["labels"] > 500 and min(operator.echoed()) > 0)
            yield running, operator


def row(level: float) -> dict[str, Any]:
    """Coefficients that no learner would find."""
    return {"slopes": [0.3, 0.0, 0.0, 0.0], "intercepts": [level] * 7, "request_variance": 0.0}


def serves(level: float) -> Callable[[CoefficientTable], bool]:
    """Whether a table has such a row in force."""
    return lambda table: table.row(KEY).intercepts.tolist() == [level] * 7


def test_an_operator_on_a_running_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Engines apply a pin within a second, learnt rows return at its end, an old version returns, and all is told."""
    override, rollback = f"/workloads/{KEY}/override", f"/workloads/{KEY}/rollback"
    with fleet(tmp_path) as (running, operator):
        preview = operator.ask("POST", f"/workloads/{KEY}/what-if", json=row(-3.0)).json()
        assert preview["verdict"] == "worse"

        took = []
        for number in range(5):
            body = {"kind": "pin", "coefficients": row(-3.0 - number), "reason": f"try {number}", "actor": "ada"}
            answer = operator.change("PUT", override, body)
            version = answer["version"]
            took.append(until(lambda version=version: min(operator.echoed()) >= version))  # type: ignore[misc]
            assert running.applies(serves(-3.0 - number))
            assert answer["warning"]["log_loss_worse_by"] > answer["warning"]["noise"]
        # The median: one slow moment of the machine that runs the tests says nothing about the path.
        assert statistics.median(took) < WITHIN_S
        pinned = version

        learnt = operator.get(f"/workloads/{KEY}")["labels"]
        body = {
            "kind": "pin",
            "coefficients": row(-9.0),
            "reason": "for two seconds",
            "actor": "ada",
            "expires_in_s": 2,
        }
        ends = operator.change("PUT", override, body)["override"]["expires_ms"]
        until(lambda: running.applies(serves(-9.0)))
        until(lambda: not any(serves(-9.0)(agent.applied.table) for agent in running.agents))
        gone = operator.ask("GET", override)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "override_unknown")
        shown = operator.get(f"/workloads/{KEY}")
        assert shown["labels"] > learnt
        assert shown["override"] is None
        assert shown["coefficients"]["intercepts"] != [-9.0] * 7
        until(lambda: operator.get(f"/workloads/{KEY}")["calibration"]["ece"] < 0.2)

        back = operator.change("POST", rollback, {"version": pinned, "reason": "compare", "actor": "bob"})
        assert back["override"]["of_version"] == pinned
        until(lambda: min(operator.echoed()) >= back["version"])
        assert running.applies(serves(-7.0))
        operator.change("DELETE", override, {"reason": "seen enough", "actor": "bob"})
        until(lambda: not any(serves(-7.0)(agent.applied.table) for agent in running.agents))

        trail = operator.get("/audit")["entries"]
        history = operator.get("/history", workload=KEY, limit=1000)["entries"]
    said = [(entry["action"], entry["actor"], entry["reason"]) for entry in reversed(trail)]
    assert said == [
        *(("put", "ada", f"try {number}") for number in range(5)),
        ("put", "ada", "for two seconds"),
        ("expire", "accord", "its time was over"),
        ("rollback", "bob", "compare"),
        ("delete", "bob", "seen enough"),
    ]
    assert all(entry["scope"] == KEY for entry in trail)
    expired = trail[2]
    assert 0 <= expired["at_ms"] - ends < 5_000
    by_version = {entry["version"]: entry for entry in history}
    for entry in trail:
        assert by_version[entry["version_after"]]["cause"] in ("override", "expired", "rollback", "lifted")
    assert {"refit", "override", "expired", "rollback", "lifted"} <= {entry["cause"] for entry in history}
    with capsys.disabled():
        print(f"\nfrom the answer to every engine's echo: {', '.join(f'{1e3 * t:.0f} ms' for t in took)}", end=" ")
