"""A second learner beside the first, on a load that keeps a core busy: several pairs with a backlog each.

Runs with one and with two learner processes take turns. By wall time the best paired run counts, because on a shared
machine the second core is not always there. By processor time the gain is that of two free cores: what one learner
needs for everything, over what the busier of two needs for its share.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import psutil
from tests.bench.rounds import KNOTS, Rounds, load_note

from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair_learner import TICK_MS
from accord.learner.store import PairKeys, Store, connect

BASE_MS = 1_700_000_000_000
GOAL = 1.7


def main(pairs: int = 4, rounds: int = 1_200, turns: int = 4) -> dict[str, float]:
    """Prints and returns by how much a second learner raises the rounds learnt a second."""
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server, Store(connect(server.url)) as store:
        fleets = [Rounds(engines=16, name=f"scale-{i}", different=20) for i in range(pairs)]
        for fleet in fleets:
            store.register(fleet.pair, KNOTS)
            key = PairKeys(fleet.pair.id).rounds
            with store.client.pipeline(transaction=False) as pipe:
                for i, payload in enumerate(fleet.take(rounds)):
                    pipe.xadd(f"{key}:kept", {b"d": payload}, id=f"{BASE_MS + i // 16 * TICK_MS}-{i % 16 + 1}")
                pipe.execute()
        gains, shares, shown = list[float](), list[float](), list[str]()
        for _ in range(turns):
            one, two = (_seconds(store, server.url, fleets, count, Path(name)) for count in (1, 2))
            gains.append(one[0] / two[0])
            shares.append(one[1] / two[1])
            shown.append(f"{pairs * rounds / one[0]:.0f} and {pairs * rounds / two[0]:.0f}")
    print(
        f"  rounds/s with one learner and with two, {pairs} pairs: {'; '.join(shown)}: best {max(gains):.2f} times; "
        f"by processor time {', '.join(f'{share:.2f}' for share in shares)} times (goal {GOAL}); {load_note()}"
    )
    return {"gain": max(gains), "by_cpu": max(shares)}


def _seconds(store: Store, url: str, fleets: list[Rounds], learners: int, folder: Path) -> tuple[float, float]:
    """From the moment that every pair has an owner and work, until everything is committed: seconds of the wall, and of
    the processor for the busiest learner."""
    ids = [fleet.pair.id for fleet in fleets]
    for pair_id in ids:
        keys = PairKeys(pair_id)
        store.client.delete(keys.state, keys.coefficients, keys.history, keys.rounds)
    environment = {"ACCORD_REDIS_URL": url}
    argv = [sys.executable, "-m", "accord.learner"]
    children = [Child(f"learner-{i}", argv, folder / f"log-{i}", environment=environment) for i in range(learners)]
    for child in children:
        child.start()
    try:
        _until(lambda: _shares(store, ids) == sorted(len(ids) // learners for _ in range(learners)), children)
        for pair_id in ids:
            keys = PairKeys(pair_id)
            store.client.copy(f"{keys.rounds}:kept", keys.rounds)
        before, start = [_cpu(child) for child in children], time.perf_counter()
        _until(lambda: all(store.client.xlen(PairKeys(pair_id).rounds) == 0 for pair_id in ids), children)
        took = time.perf_counter() - start
        return took, max(_cpu(child) - was for child, was in zip(children, before, strict=True))
    finally:
        for child in children:
            child.stop()


def _cpu(child: Child) -> float:
    times = psutil.Process(child.pid).cpu_times()
    return float(times.user + times.system)


def _shares(store: Store, ids: list[str]) -> list[int]:
    owners = [held.owner for pair_id in ids if (held := store.lease_holder(pair_id)) is not None]
    return sorted(owners.count(owner) for owner in set(owners))


def _until(condition: object, children: list[Child]) -> None:
    deadline = time.monotonic() + 300.0
    while not condition():  # type: ignore[operator]
        assert all(child.alive for child in children), [child.tail() for child in children]
        assert time.monotonic() < deadline, [child.tail() for child in children]
        time.sleep(0.02)


if __name__ == "__main__":
    main()
