"""Rounds a second from the stream to committed coefficients, over redis-py's own XREAD drain of the same entries.

A whole learner service works through a backlog on a real server: it reads, decodes, checks, weighs, folds, refits,
judges and commits. The other side reads the same entries with the same client and drops them. Both take turns in one
process, the best turn of each counts. The ratio is that of CPU time, which a busy machine blurs less; wall time beside.
"""

from __future__ import annotations

import time

from tests.bench.rounds import KNOTS, Rounds, load_note

from accord.learner.counters import Counters
from accord.learner.drift import check_river
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair_learner import TICK_MS
from accord.learner.service.loop import LearnerService
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import PairKeys, Store, connect

BASE_MS = 1_700_000_000_000
GOAL = 0.5


def main(entries: int = 3_200, turns: int = 3, per_tick: tuple[int, ...] = (8, 100, 800)) -> dict[int, float]:
    """Prints and returns the ratio for each number of rounds in a tick of a quarter of a second."""
    check_river()
    ratios = {}
    with EmbeddedServer() as server:
        for rounds in per_tick:
            count = min(entries, 100 * rounds)
            with Store(connect(server.url)) as store:
                store.client.flushall()
                fleet = Rounds(engines=max(rounds, 64))
                store.register(fleet.pair, KNOTS)
                size = _load(store, fleet, count, rounds)
                drained, learnt = [], []
                for _ in range(turns):
                    drained.append(_drain(store, count))
                    learnt.append(_learn(store, server.url, fleet, count))
            ours, theirs = count / min(cpu for cpu, _ in learnt), count / min(cpu for cpu, _ in drained)
            walls = count / min(wall for _, wall in learnt), count / min(wall for _, wall in drained)
            ratios[rounds] = ours / theirs
            print(
                f"  {rounds:4d} rounds a tick ({4 * rounds} a second), {size:.0f} bytes each: learner {ours:.0f} "
                f"rounds per CPU second, bare XREAD {theirs:.0f}: ratio {ours / theirs:.4f}; keeps up "
                f"{ours / (4 * rounds):.1f} times; by wall time {walls[0]:.0f} and {walls[1]:.0f}"
            )
    print(f"  goal: {GOAL}; {len(fleet.pool[0][0].workloads)} workloads, K = {fleet.pair.k}; {load_note()}")
    return ratios


def _load(store: Store, fleet: Rounds, count: int, per_tick: int) -> float:
    """Lays the rounds out over ticks of a kept stream; bytes of an entry."""
    total = 0
    with store.client.pipeline(transaction=False) as pipe:
        for i, payload in enumerate(fleet.take(count)):
            total += len(payload)
            pipe.xadd(_kept(fleet), {b"d": payload}, id=f"{BASE_MS + i // per_tick * TICK_MS}-{i % per_tick + 1}")
            if i % 500 == 499:
                pipe.execute()
        pipe.execute()
    return total / count


def _kept(fleet: Rounds) -> str:
    return PairKeys(fleet.pair.id).rounds + ":kept"


def _drain(store: Store, count: int) -> tuple[float, float]:
    """CPU and wall seconds in which redis-py alone reads everything."""
    (kept,) = store.client.keys("*:kept")
    start, last, seen = _now(), b"0-0", 0
    while found := store.client.xread({kept: last}, count=1000):
        entries = found[0][1]
        seen, last = seen + len(entries), entries[-1][0]
    took = _since(start)
    assert seen == count
    return took


def _learn(store: Store, url: str, fleet: Rounds, count: int) -> tuple[float, float]:
    """CPU and wall seconds in which a learner that starts afresh learns and commits everything."""
    keys = PairKeys(fleet.pair.id)
    store.client.delete(keys.state, keys.coefficients, keys.history, keys.rounds)
    store.client.copy(_kept(fleet), keys.rounds)
    service = LearnerService(LearnerSettings(redis_url=url, lease_ms=60_000), Store(connect(url, role="learner")))
    service.membership.rebalance()
    last = store.client.xrevrange(keys.rounds, count=1)[0][0].decode()
    start = _now()
    while store.client.hget(keys.state, "watermark") != last.encode():
        service.cycle()
    took = _since(start)
    counters = Counters.decode(store.load(fleet.pair.id).counters)
    assert counters.summaries == count, counters
    service.membership.leave()
    service.store.close()
    return took


def _now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    cpu, wall = _now()
    return cpu - start[0], wall - start[1]


if __name__ == "__main__":
    main()
