"""The driver: a world, faults drawn from a seed, an end in order, and the account."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.proxy import TcpProxy
from tests.waiting import until

from accord.learner.evaluate.trace import Trace
from accord.learner.pair import Pair
from accord.learner.store import Store as AccordStore
from accord.learner.store import connect

from .faults import Event, Fault, Store, World, cluster_faults, sentinel_faults, standalone_faults
from .ledger import accounts
from .stack import Size, Stack, pairs_of
from .stores import Cluster, Sentinels, Standalone
from .verdict import StepTimes, Verdict, step_times

CALM_S = 4.0
KINDS = ("standalone", "sentinel", "cluster")


@dataclass(frozen=True)
class Report:
    """What one campaign showed."""

    kind: str
    seed: int
    seconds: float
    events: list[Event]
    verdict: Verdict
    times: StepTimes
    stops: list[tuple[str, float]]

    def lines(self) -> list[str]:
        """For people."""
        v, t = self.verdict, self.times
        counts: dict[str, int] = {}
        for event in self.events:
            counts[event.name] = counts.get(event.name, 0) + 1
        slowest = max((seconds for _, seconds in self.stops), default=0.0)
        return [
            f"{self.kind}: seed {self.seed}, {self.seconds:.0f} s, {len(self.events)} faults",
            *(f"  {count} x {name}" for name, count in sorted(counts.items())),
            f"  engines counted {v.observed} labels in {v.boots} boots; learnt {v.learnt}; lost {sum(v.lost.values())}",
            *(f"    {labels}: {reason}" for reason, labels in sorted(v.lost.items())),
            f"  {v.entries} summaries, {v.duplicates} duplicates, {v.merged_rounds} rounds merged, "
            f"{v.rounds_missing} rounds missing, {v.rewinds} rewinds",
            f"  p99 of our part of a step: {t.ours.calm:.2f} ms calm, {t.ours.faults:.2f} ms under faults (control "
            f"{t.control.calm:.2f} and {t.control.faults:.2f} ms; limit {t.limit_ms:.2f} ms); of the processor "
            f"{t.ours.calm_cpu:.2f} and {t.ours.faults_cpu:.2f} ms; {t.ours.steps} steps",
            f"  slowest SIGTERM before a silent Redis: {slowest:.1f} s",
            *(f"  WRONG: {fault}" for fault in v.faults),
        ]


def run(kind: str, seed: int, seconds: float, folder: Path, size: Size, say: Callable[[str], None] = print) -> Report:
    """One campaign: at least every kind of fault once, more until the time is over."""
    rng = random.Random(f"{kind} {seed}")
    pairs = pairs_of(Trace.bundled().pair, size.pairs)
    store, faults = _store(kind, folder / "store", pairs, seconds)
    store.start()
    stack = _stack(kind, folder, size, pairs, store)
    world = World(store, stack, rng)
    begin = time.monotonic()
    try:
        stack.start()
        _inject(world, faults, seconds, say)
        settle(world, say)
        with AccordStore(connect(store.url)) as accord:
            until(lambda: _learnt(accord, store, pairs), 60.0, "everything learnt")
            for child in stack.learners:
                stack.end(child, 20.0)
            verdict = _verdict(accord, world, pairs)
    finally:
        world.over.set()
        stack.close()
        store.close()
    for child in [*stack.learners, *stack.apis, *stack.fleets]:
        for found in re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", tracebacks(child.log), re.MULTILINE):
            verdict.faults.append(f"{child.name} logged {found}")
    times = step_times(accounts(stack.ledger), accounts(stack.control_ledger), world.events)
    if not times.good:
        verdict.faults.append(f"steps became slower: {times}")
    return Report(kind, seed, time.monotonic() - begin, world.events, verdict, times, world.shut)


def tracebacks(log: Path) -> str:
    """The parts of a log that are tracebacks, with what they end in."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*\S.*", text))


def _store(kind: str, folder: Path, pairs: list[Pair], seconds: float) -> tuple[Store, dict[str, Fault]]:
    if kind == "standalone":
        # Nothing is ever rewritten, so that the file tells of every entry: it grows by two megabytes a second.
        alone = Standalone(folder, disk_mb=256 + round(4 * seconds))
        return alone, standalone_faults(alone)
    if kind == "sentinel":
        watched = Sentinels(folder, [pair.id for pair in pairs])
        return watched, sentinel_faults(watched)
    cluster = Cluster(folder)
    return cluster, cluster_faults(cluster)


def _stack(kind: str, folder: Path, size: Size, pairs: list[Pair], store: Store) -> Stack:
    stack = Stack(folder / "parts", size, pairs, store.url)
    if isinstance(store, Standalone):
        stack.proxied, stack.learner_proxy, stack.api_proxy = (TcpProxy("127.0.0.1", store.node.port) for _ in range(3))
    return stack


def _inject(world: World, faults: dict[str, Fault], seconds: float, say: Callable[[str], None]) -> None:
    """Calm first, so that there is something to compare with; then fault after fault with calm between them."""
    end = time.monotonic() + seconds
    world.over.wait(CALM_S)
    pace = world.stack.size.pace
    names: list[str] = []
    once = set(faults)
    while once or time.monotonic() < end:
        if not names:
            names = sorted(faults)
            world.rng.shuffle(names)
        name = names.pop()
        say(f"{time.strftime('%H:%M:%S')} {name}")
        faults[name](world)
        once.discard(name)
        world.over.wait(world.rng.uniform(0.5, 3.0) * pace)


def settle(world: World, say: Callable[[str], None]) -> None:
    """All is well again: the engines come back to the fleet's coefficients, then end in order, with nothing unsent."""
    say("settling")
    for child in world.stack.fleets:
        status = world.stack.end(child, 90.0)
        # One that was just started again may not have got as far as to listen, let alone to count.
        if status not in (0, -signal.SIGTERM):
            raise AssertionError(f"{child.name} ended with {status}: {child.tail(5)}")


def _learnt(accord: AccordStore, store: Store, pairs: list[Pair]) -> bool:
    for pair in pairs:
        entries, stored = store.entries(pair.id), accord.load(pair.id)
        if not entries or stored.watermark != entries[-1][0] or b'"due":false' not in (stored.body or b""):
            return False
    return True


def _verdict(accord: AccordStore, world: World, pairs: list[Pair]) -> Verdict:
    books = accounts(world.stack.ledger)
    verdict = Verdict()
    for pair in pairs:
        mine = [book for book in books if book.pair == pair.id]
        verdict.judge(accord, pair, world.store.entries(pair.id), world.store.lost(pair.id), mine)
    verdict.close()
    return verdict
