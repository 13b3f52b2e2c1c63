"""What the agent of an engine costs at 100 rounds a second, and what a round needs on the wire.

The information that a round carries is what the learner cannot know before. Its coefficients are known by their
version. Every sum is known up to its own sampling noise, and noise finer than a tenth of a standard deviation teaches
nothing: a number quantised to sigma / 10 has log2(sqrt(2 pi e) * 10) = 5.4 bits. Counts are sent exactly: the entropy
of a Poisson count with the mean over many rounds. Boot, sequence and version need a few bytes more.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
from tests.bench.rounds import KNOTS, SKETCH_EVERY, STEPS, Rounds, load_note

from accord.hooks.agent import Agent
from accord.hooks.outbox import RoundParts
from accord.hooks.settings import AgentSettings
from accord.learner.basis import Array
from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect
from accord.learner.wire import decode, encode

RATE = 100.0
NUMBER_BITS = 0.5 * np.log2(2.0 * np.pi * np.e) + np.log2(10.0)
HEADER_BYTES = 16


def main(seconds: float = 20.0) -> dict[str, float]:
    """Prints and returns the agent's CPU share, its memory in MB, and bytes sent over bytes needed."""
    found = wire()
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server:
        ready = Path(name) / "url"
        api = Child("api", [sys.executable, "-m", "accord.api", "--port", "0", "--ready-file", str(ready)],
                    Path(name) / "log", environment={"ACCORD_REDIS_URL": server.url})  # fmt: skip
        api.start()
        while not ready.exists():
            time.sleep(0.02)
        try:
            # A process of its own: its CPU and memory are the agent's and the evidence's, nothing else.
            argv = [sys.executable, "-m", "tests.bench.agent_cost", server.url, ready.read_text().strip(), str(seconds)]
            out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        finally:
            api.stop()
    share, caller, memory, sent = (float(word) for word in out.split())
    print(
        f"  agent at {RATE:.0f} rounds/s for {seconds:.0f} s: {share:.1%} of one core, {caller:.2%} on the engine's "
        f"own "
        f"thread, {memory:.1f} MB beside an idle Python with the same modules; {sent:.0f} rounds landed"
    )
    print(f"  {load_note()}")
    return found | {"cpu_share": share, "memory_mb": memory, "landed": sent / (seconds * RATE)}


def wire() -> dict[str, float]:
    """Bytes of a round as sent, and as information."""
    fleet = Rounds(engines=1)
    plain = np.mean([len(encode(one)) for one, _ in fleet.pool])
    full = np.mean([len(encode(one)) for _, one in fleet.pool])
    sent = plain + (full - plain) / SKETCH_EVERY
    moments = sum(array[0].size for name, array in fleet.pool[0][0].moments.arrays().items() if name not in ("n", "y"))
    rows = len(fleet.pool[0][0].workloads)
    counts = _count_bits([one.moments.n for one, _ in fleet.pool]) + _count_bits(
        [one.moments.y for one, _ in fleet.pool]
    )
    needed = HEADER_BYTES + (rows * moments * NUMBER_BITS + counts) / 8.0
    sketches = [one.sketch for _, one in fleet.pool[::SKETCH_EVERY] if one.sketch is not None]
    cells = [np.concatenate([s.acceptance.reshape(-1, 3), s.survival.reshape(-1, 3)]) for s in sketches]
    labels = sum(_count_bits([cell[:, channel] for cell in cells]) for channel in (0, 1))
    filled = float(np.mean([np.count_nonzero(cell[:, 0]) for cell in cells]))
    sketch = (labels + filled * NUMBER_BITS) / 8.0
    need = needed + sketch / SKETCH_EVERY
    print(
        f"  a round of {STEPS} steps, {rows} workloads, K = {fleet.pair.k}, knots {KNOTS}: {sent:.0f} bytes sent, "
        f"of them "
        f"sketch {(full - plain) / SKETCH_EVERY:.0f}; information {need:.0f}, of them sketch "
        f"{sketch / SKETCH_EVERY:.0f}: "
        f"{sent / need:.1f} times"
    )
    return {"bytes": sent, "needed": need, "ratio": sent / need}


def _count_bits(counts: list[Array]) -> float:
    """Entropy in bits of Poisson counts with the mean over all of them, summed over the cells."""
    mean = np.mean([np.ravel(count) for count in counts], axis=0)
    n = np.arange(2_000.0)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, 2_000.0)))])
    bits = 0.0
    for rate in mean[mean > 0.0]:
        if rate > 200.0:
            bits += 0.5 * np.log2(2.0 * np.pi * np.e * rate)
            continue
        log_p = n * np.log(rate) - rate - log_factorial
        bits -= float(np.exp(log_p) @ log_p) / np.log(2.0)
    return bits


def _engine(redis_url: str, api_url: str, seconds: float) -> None:
    """Puts rounds at the given rate and prints what it cost beside doing nothing."""
    fleet = Rounds(engines=1)
    parts = [
        RoundParts(
            0, STEPS, s.workloads, s.slopes, s.intercepts, s.moments, s.sketch if i % SKETCH_EVERY == 4 else None
        )
        for i, (_, s) in enumerate(fleet.pool)
    ]
    process = psutil.Process()
    idle = _paced(seconds / 2.0, lambda number: None)
    memory = process.memory_info().rss
    with Store(connect(redis_url)) as store:
        store.register(fleet.pair, KNOTS)
        agent = Agent(fleet.pair, AgentSettings(redis_url=redis_url, api_url=api_url, engine="bench/0"))
        agent.start()
        caller = 0.0

        def put(number: int) -> None:
            nonlocal caller
            start = time.thread_time()
            agent.boundary()
            agent.put(parts[number % len(parts)])
            caller += time.thread_time() - start

        busy = _paced(seconds, put)
        most = process.memory_info().rss
        agent.stop(10.0)
        # Rounds that had to wait may have been merged into one entry.
        landed = sum(decode(payload).rounds for _, payload in store.read(fleet.pair.id, "0-0", 100_000))
    print(busy / seconds - idle / (seconds / 2.0), caller / seconds, (most - memory) / 1e6, landed)


def _paced(seconds: float, work: object) -> float:
    """CPU seconds of this process while it calls `work(number)` at the rate."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    before, end = usage.ru_utime + usage.ru_stime, time.monotonic() + seconds
    for number, at in enumerate(_times(end, seconds)):
        threading.Event().wait(max(at - time.monotonic(), 0.0))
        work(number)  # type: ignore[operator]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime - before


def _times(end: float, seconds: float) -> Iterator[float]:
    count = round(seconds * RATE)
    return (end - seconds + (i + 1) / RATE for i in range(count))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _engine(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    else:
        main()
