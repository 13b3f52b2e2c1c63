"""A fleet of ten thousand engines before one real learner and one real store.

The engines are simulated by their events: each ends a round when it is due, with evidence of its own place in the trace
and under its own name, boot and sequence. Everything behind XADD is real. Lag is the time from an entry's id to the
commit that contains it; staleness the age of the newest evidence in the committed state, looked at all the time. Both
are by the store's clock.
"""

from __future__ import annotations

import bisect
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from tests.bench.rounds import KNOTS, Rounds, load_note

from accord.learner.child import Child
from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import PairKeys, Store, connect, stream_id

LOOK_S = 0.02


@dataclass
class Seen:
    """What the watcher saw.

    Attributes:
        marks, commits: watermark and time of every commit, unix ms; ages: of the newest learnt evidence, ms.
        ids: unix ms of every entry.
    """

    marks: list[tuple[int, int]] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    ids: list[tuple[int, int]] = field(default_factory=list)

    def lags(self) -> np.ndarray:
        """Of every entry that was committed, ms."""
        places = [bisect.bisect_left(self.marks, entry) for entry in self.ids]
        found = [self.commits[p] - entry[0] for p, entry in zip(places, self.ids, strict=True) if p < len(self.marks)]
        return np.array(found)


def main() -> None:
    """Ten thousand engines in one pair, with rounds of a minute, of six seconds, and of three, the default."""
    for round_s, seconds in ((60.0, 30.0), (6.0, 20.0), (3.0, 15.0)):
        simulate(10_000, round_s, seconds)


def simulate(engines: int, round_s: float, seconds: float, pairs: int = 1) -> dict[str, float]:
    """Prints and returns lag, staleness, CPU and how much of what was sent was learnt."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server, Store(connect(server.url)) as store:
        fleets = [Rounds(engines // pairs, name=f"fleet-{i}") for i in range(pairs)]
        due = [np.sort(rng.uniform(0.0, seconds, round(engines / pairs * seconds / round_s))) for _ in fleets]
        sends = sorted((float(at), i) for i, times in enumerate(due) for at in times)
        payloads = [list(fleet.take(len(times))) for fleet, times in zip(fleets, due, strict=True)]
        for fleet in fleets:
            store.register(fleet.pair, KNOTS)
        learner = Child("learner", [sys.executable, "-m", "accord.learner"], Path(name) / "log",
                        environment={"ACCORD_REDIS_URL": server.url})  # fmt: skip
        learner.start()
        while any(store.lease_holder(fleet.pair.id) is None for fleet in fleets):
            assert learner.alive, learner.tail()
            time.sleep(0.02)
        try:
            processes = psutil.Process(learner.pid), psutil.Process(server.pid)
            before = [_cpu(process) for process in processes]
            seen = _drive(store, fleets, sends, payloads)
            shares = [(_cpu(process) - was) / seconds for process, was in zip(processes, before, strict=True)]
            learnt, versions = _drained(store, fleets, learner)
        finally:
            learner.stop()
    lags, ages = np.concatenate([one.lags() for one in seen]), np.concatenate([one.ages for one in seen])
    lag, stale = np.percentile(lags, (50, 99)) / 1000.0, np.percentile(ages, (50, 99)) / 1000.0
    print(
        f"  {engines} engines, {pairs} pair(s), a round every {round_s:.0f} s each, {len(sends) / seconds:.0f} "
        f"rounds/s "
        f"for {seconds:.0f} s: lag p50 {lag[0]:.2f} p99 {lag[1]:.2f} s, staleness p50 {stale[0]:.2f} p99 "
        f"{stale[1]:.2f} s, "
        f"{len(lags) / len(sends):.1%} learnt while it ran, learner {shares[0]:.0%} of a core, store {shares[1]:.0%}, "
        f"{versions} versions; {load_note()}"
    )
    return {"lag_p99": float(lag[1]), "stale_p99": float(stale[1]), "learnt": learnt / len(sends), "cpu": shares[0]}


def _drive(
    store: Store, fleets: Sequence[Rounds], sends: list[tuple[float, int]], payloads: list[list[bytes]]
) -> list[Seen]:
    keys = [PairKeys(fleet.pair.id) for fleet in fleets]
    seen, place = [Seen() for _ in fleets], [0] * len(fleets)
    start, at = time.monotonic(), 0
    while at < len(sends):
        now = time.monotonic() - start
        pipe = store.client.pipeline(transaction=False)
        sent = []
        while at < len(sends) and sends[at][0] <= now:
            pair = sends[at][1]
            pipe.xadd(keys[pair].rounds, {b"d": payloads[pair][place[pair]]}, maxlen=50_000, approximate=True)
            place[pair] += 1
            sent.append(pair)
            at += 1
        for key in keys:
            pipe.hmget(key.state, "watermark", "committed_ms")
        pipe.time()
        *replies, (seconds, micros) = pipe.execute()
        for pair, entry in zip(sent, replies, strict=False):
            seen[pair].ids.append(stream_id("id", entry.decode()))
        for one, (mark, committed) in zip(seen, replies[len(sent) :], strict=True):
            if mark is not None:
                _look(one, stream_id("mark", mark.decode()), int(committed), seconds * 1000 + micros // 1000)
        time.sleep(LOOK_S)
    return seen


def _look(one: Seen, mark: tuple[int, int], committed: int, now_ms: int) -> None:
    if not one.marks or mark > one.marks[-1]:
        one.marks.append(mark)
        one.commits.append(committed)
    one.ages.append(now_ms - mark[0])


def _drained(store: Store, fleets: Sequence[Rounds], learner: Child) -> tuple[int, int]:
    """Rounds learnt and versions published once the rest has been learnt, too."""
    deadline = time.monotonic() + 120.0
    while any(store.client.xlen(PairKeys(fleet.pair.id).rounds) for fleet in fleets):
        assert learner.alive, learner.tail()
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    counters = [Counters.decode(store.load(fleet.pair.id).counters) for fleet in fleets]
    return sum(one.rounds for one in counters), sum(store.load(fleet.pair.id).version for fleet in fleets)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
