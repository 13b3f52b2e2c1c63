"""From a round's evidence to coefficients in the engine's hands, leg by leg."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from accord.hooks.agent import Agent
from accord.hooks.outbox import RoundParts
from accord.hooks.settings import AgentSettings
from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.child import Child
from accord.learner.coefficients import CoefficientTable
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, tick_of
from accord.learner.store import Store, connect

K, PAIRS, ROUNDS = 7, 4, 40
BASIS = SplineBasis((0.0, 2.0, 4.0))
LEGS = (
    "put -> XADD answered",
    "XADD -> end of its tick (explained)",
    "end of tick -> folded",
    "folded -> committed",
    "committed -> long-poll answered",
    "long-poll answered -> held by the agent",
)
GOAL_MS = 50.0


@dataclass
class Timeline:
    """When things happened to the rounds of one pair, unix seconds."""

    put: list[float] = field(default_factory=list)
    landed: list[tuple[str, float]] = field(default_factory=list)
    answered: dict[int, float] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)


def main(rounds: int = ROUNDS, pairs: int = PAIRS) -> dict[str, tuple[float, float]]:
    """Runs the loop and prints p50 and p99 of every leg, in milliseconds."""
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server:
        folder = Path(name)
        ready, probe = folder / "url", folder / "probe"
        environment = {"ACCORD_REDIS_URL": server.url}
        argv = [sys.executable, "-m"]
        api = Child("api", [*argv, "accord.api", "--port", "0", "--ready-file", str(ready)], folder / "api.log",
                    environment=environment)  # fmt: skip
        learner = Child("learner", [*argv, "tests.bench.probed_learner", str(probe)], folder / "learner.log",
                        environment=environment)  # fmt: skip
        api.start()
        learner.start()
        deadline = time.monotonic() + 30.0
        while not ready.exists():
            assert time.monotonic() < deadline, api.tail()
            time.sleep(0.02)
        try:
            lines = _drive(server.url, ready.read_text().strip(), rounds, pairs)
        finally:
            api.stop()
            learner.stop()
        return _report(lines, [json.loads(line) for line in probe.read_text().splitlines()])


def _drive(redis_url: str, api_url: str, rounds: int, pairs: int) -> dict[str, Timeline]:
    """One agent a pair; each sends a round now and then that moves its coefficients, and waits for the new ones."""
    rng = np.random.default_rng(0)
    # Made beforehand: what is measured must not wait for the arithmetic of this process.
    made = [[_round(rng, 0.8 if number % 2 else -0.8) for _ in range(pairs)] for number in range(rounds)]
    lines: dict[str, Timeline] = {}
    agents: list[tuple[Agent, Timeline]] = []
    store = Store(connect(redis_url))
    for index in range(pairs):
        pair = Pair(f"target-{index}", "draft", Method.DRAFT_MODEL, DraftSampling.PROBABILISTIC, K)
        store.register(pair, BASIS.knots)
        settings = AgentSettings(redis_url=redis_url, api_url=api_url, engine=f"bench-{index}/0")
        agent, line = Agent(pair, settings), Timeline()
        _instrument(agent, line)
        lines[pair.id] = line
        agents.append((agent, line))
    for agent, _ in agents:
        agent.start()
    try:
        # Every agent's long-poll is open before the first round, as in an engine that runs.
        time.sleep(1.5)
        for parts in made:
            for (agent, line), part in zip(agents, parts, strict=True):
                line.put.append(time.time())
                agent.put(part)
                time.sleep(float(rng.uniform(0.0, 0.1)))
            # More than the publish interval, and out of step with the ticks.
            time.sleep(float(rng.uniform(1.1, 1.4)))
    finally:
        for agent, _ in agents:
            agent.stop(5.0)
        store.close()
    return lines


def _round(rng: np.random.Generator, intercept: float) -> RoundParts:
    accumulator = Accumulator(K, BASIS, 1, 32)
    rows = np.arange(32)
    for _ in range(60):
        f = rng.normal(2.0, 2.0, (32, K))
        y = rng.random((32, K)) < 1.0 / (1.0 + np.exp(-0.5 * f - intercept))
        accumulator.observe(f, np.zeros(32, dtype=np.intp), rows, np.cumprod(y, axis=1).sum(axis=1), np.full(32, K))
    return RoundParts(
        version=0, steps=60, workloads=("default:sampled",), slopes=accumulator.slopes,
        intercepts=accumulator.intercepts, moments=accumulator.drain(), sketch=None,
    )  # fmt: skip


def _instrument(agent: Agent, line: Timeline) -> None:
    judge, publisher = agent._judge, agent._publisher
    assert publisher is not None
    decode, on_table = judge.decode, agent.on_table

    def timed_decode(body: bytes) -> CoefficientTable:
        now = time.time()
        table = decode(body)
        line.answered.setdefault(table.version, now)
        return table

    def timed_table(table: CoefficientTable) -> None:
        on_table(table)
        line.held.setdefault(table.version, time.time())

    def open_store(url: str) -> Store:
        store = Store(connect(url, role="bench"))
        append = store.append

        def timed_append(pair_id: str, payload: bytes) -> str:
            entry_id = append(pair_id, payload)
            line.landed.append((entry_id, time.time()))
            return entry_id

        store.append = timed_append  # type: ignore[method-assign, assignment]
        return store

    object.__setattr__(judge, "decode", timed_decode)
    agent.on_table = timed_table  # type: ignore[method-assign]
    publisher._open_store = open_store


def _report(lines: dict[str, Timeline], probed: list[dict[str, object]]) -> dict[str, tuple[float, float]]:
    legs: list[list[float]] = []
    # The first version of each pair is the learner's own first refit in its life, with all that is loaded then.
    probed = [item for item in probed if int(str(item["version"])) > 1]
    for item in probed:
        line, version = lines[str(item["pair"])], int(str(item["version"]))
        found = [i for i, (entry, _) in enumerate(line.landed) if entry == item["watermark"]]
        if not found or version not in line.held:
            continue
        entry, landed = line.landed[found[0]]
        tick_end = (tick_of(entry) + 1) * TICK_MS / 1000.0
        folded, committed = float(str(item["folded"])), float(str(item["committed"]))
        times = [line.put[found[0]], landed, max(tick_end, landed), folded, committed,
                 line.answered[version], line.held[version]]  # fmt: skip
        legs.append([1000.0 * (b - a) for a, b in itertools.pairwise(times)])
    table = np.array(legs)
    of = f"{len(table)} of {len(probed)} publications of {len(lines)} pairs were held by their agent"
    print(f"from evidence to coefficients, milliseconds; {of}")
    results: dict[str, tuple[float, float]] = {}
    unexplained = table.sum(axis=1) - table[:, 1]
    for name, values in [*zip(LEGS, table.T, strict=True), ("all that the tick does not explain", unexplained)]:
        p50, p99 = np.percentile(values, (50, 99))
        results[name] = (float(p50), float(p99))
        print(f"  {name:<42} p50 {p50:8.2f}   p99 {p99:8.2f}")
    print(f"  goal: unexplained p99 under {GOAL_MS:.0f} ms: {'met' if results[name][1] < GOAL_MS else 'MISSED'}")
    return results


if __name__ == "__main__":
    main()
