"""What happens to whom. Every fault begins, lasts, ends, and leaves the world whole again."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.learner.child import Child

from .node import Node
from .stack import Stack
from .stores import Cluster, Sentinels, Standalone

Store = Standalone | Sentinels | Cluster
Fault = Callable[["World"], None]


@dataclass(frozen=True)
class Event:
    """A fault that was injected: monotonic seconds, and the process that stood still, if one did."""

    name: str
    begin: float
    end: float
    frozen: str = ""


@dataclass
class World:
    """What faults act on; `rng` decides everything that is left open."""

    store: Store
    stack: Stack
    rng: random.Random
    over: threading.Event = field(default_factory=threading.Event)
    events: list[Event] = field(default_factory=list)
    shut: list[tuple[str, float]] = field(default_factory=list)

    def last(self, low: float, high: float) -> None:
        """Lets a fault last between so many seconds, times the pace."""
        self.over.wait(self.rng.uniform(low, high) * self.stack.size.pace)

    @contextmanager
    def event(self, name: str, frozen: str = "") -> Iterator[None]:
        """Writes a fault down."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.events.append(Event(name, begin, time.monotonic(), frozen))


def process_faults(kind: str) -> dict[str, Fault]:
    """SIGKILL, SIGSTOP and SIGTERM of a random process of a kind."""

    def victim(world: World) -> Child:
        group: list[Child] = getattr(world.stack, f"{kind}s")
        return world.rng.choice(group)

    def kill(world: World) -> None:
        child = victim(world)
        with world.event(f"kill {kind}"):
            child.kill()
            world.last(0.3, 2.0)
            child.start()

    def freeze(world: World) -> None:
        child = victim(world)
        with world.event(f"freeze {kind}", child.name):
            child.signal(signal.SIGSTOP)
            world.last(1.0, 5.0)
            child.signal(signal.SIGCONT)

    def end(world: World) -> None:
        child = victim(world)
        with world.event(f"end {kind}"):
            world.stack.end(child, 30.0)
            world.last(0.1, 0.5)
            child.start()

    return {f"kill {kind}": kill, f"freeze {kind}": freeze, f"end {kind}": end}


def network_faults(name: str, proxies: Callable[[World], list[TcpProxy]]) -> dict[str, Fault]:
    """A cut, and half a second of delay each way."""

    def cut(world: World) -> None:
        with world.event(f"cut {name}"):
            for proxy in proxies(world):
                proxy.cut()
            world.last(0.5, 4.0)
            for proxy in proxies(world):
                proxy.restore()

    def delay(world: World) -> None:
        with world.event(f"delay {name} by 500 ms"):
            for proxy in proxies(world):
                proxy.delay(0.5)
            world.last(4.0, 8.0)
            for proxy in proxies(world):
                proxy.delay(0.0)

    def deaf(world: World) -> None:
        with world.event(f"lose replies to {name}"):
            for proxy in proxies(world):
                proxy.drop_replies(world.rng.randint(1, 6))
            world.last(0.3, 1.0)

    return {f"cut {name}": cut, f"delay {name} by 500 ms": delay, f"lose replies to {name}": deaf}


def _some(proxy: TcpProxy | None) -> list[TcpProxy]:
    return [] if proxy is None else [proxy]


def standalone_faults(store: Standalone) -> dict[str, Fault]:
    """Everything that can happen to one server, and to the ways to it."""
    node = store.node
    found: dict[str, Fault] = {}
    for kind in ("learner", "api", "fleet"):
        found |= process_faults(kind)
    found |= network_faults("engines - Redis", lambda world: _some(world.stack.proxied))
    found |= network_faults("learners - Redis", lambda world: _some(world.stack.learner_proxy))
    found |= network_faults("APIs - Redis", lambda world: _some(world.stack.api_proxy))
    found |= network_faults("engines - APIs", lambda world: world.stack.http)
    found |= node_faults(lambda _: node)
    found |= {"no memory": no_memory, "end a learner before a silent Redis": shut_down_in_silence}
    if store.mounted:
        found |= {"full disk": full_disk, "full disk, fsync by the second": full_disk_lazily}
    if node.movable:
        found |= {"clock ahead by an hour": clock(3600), "clock back by a minute": clock(-60),
                  "clock ahead by a day and back": clock(90_000)}  # fmt: skip
    return found


def node_faults(choose: Callable[[World], Node]) -> dict[str, Fault]:
    """SIGKILL, SIGSTOP and an orderly restart of a server, on its data."""

    def kill(world: World) -> None:
        node = choose(world)
        with world.event("kill Redis"):
            node.kill()
            world.last(0.3, 2.0)
            node.start()

    def freeze(world: World) -> None:
        node = choose(world)
        with world.event("freeze Redis"):
            node.freeze()
            world.last(1.0, 7.0)
            node.thaw()

    def restart(world: World) -> None:
        node = choose(world)
        with world.event("restart Redis"):
            node.stop()
            world.last(0.0, 0.5)
            node.start()

    return {"kill Redis": kill, "freeze Redis": freeze, "restart Redis": restart}


def no_memory(world: World) -> None:
    """`maxmemory` is reached; with noeviction writes are refused."""
    assert isinstance(world.store, Standalone)
    node = world.store.node
    with world.event("no memory"):
        node.do("CONFIG", "SET", "maxmemory", "1mb")
        world.last(1.0, 5.0)
        node.do("CONFIG", "SET", "maxmemory", "0")


def full_disk(world: World) -> None:
    """No block is left for the append-only file: with fsync on every write the server ends itself."""
    assert isinstance(world.store, Standalone)
    store = world.store
    with world.event("full disk"):
        store.fill_disk()
        deadline = time.monotonic() + 5.0
        while store.node.child.alive and time.monotonic() < deadline:
            time.sleep(0.02)
        world.last(0.2, 1.0)
        store.free_disk()
        store.node.stop()
        store.node.start()


def full_disk_lazily(world: World) -> None:
    """The same with fsync by the second: the server lives, and refuses writes until there is space."""
    assert isinstance(world.store, Standalone)
    store = world.store
    with world.event("full disk, fsync by the second"):
        store.node.do("CONFIG", "SET", "appendfsync", "everysec")
        store.fill_disk()
        world.last(1.5, 5.0)
        store.free_disk()
        until(lambda: aof_is_well(store.node), 20.0, "the append-only file going on")
        store.node.do("CONFIG", "SET", "appendfsync", "always")


def aof_is_well(node: Node) -> bool:
    """Whether the last write to the file went well."""
    with contextlib.suppress(redis.RedisError, OSError), node.client() as client:
        return bool(client.info("persistence")["aof_last_write_status"] == "ok")
    return False


def clock(seconds: float) -> Fault:
    """The server's clock jumps, and jumps back."""

    def jump(world: World) -> None:
        assert isinstance(world.store, Standalone)
        with world.event(f"clock {seconds:+.0f} s and back"):
            world.store.node.move_clock(seconds)
            world.last(1.5, 5.0)
            world.store.node.move_clock(0.0)
            world.last(1.0, 2.0)

    return jump


def shut_down_in_silence(world: World) -> None:
    """SIGTERM of a learner and of an API while Redis says nothing: how long that takes is written down."""
    assert isinstance(world.store, Standalone)
    children = [world.rng.choice(world.stack.learners), world.rng.choice(world.stack.apis)]
    with world.event("end a learner before a silent Redis"):
        world.store.node.freeze()
        world.last(0.5, 1.0)
        for child in children:
            begin = time.monotonic()
            world.stack.end(child, 60.0)
            world.shut.append((child.name, time.monotonic() - begin))
        world.store.node.thaw()
        for child in children:
            child.start()


def sentinel_faults(store: Sentinels) -> dict[str, Fault]:
    """Failovers: after a kill, after a freeze (the old primary wakes up later), with writes that no replica saw."""

    def killed(world: World) -> None:
        with world.event("failover after a kill"):
            old = store.primary
            old.kill()
            store.take_over(old)
            store.rejoin(old)

    def frozen(world: World) -> None:
        with world.event("failover after a freeze"):
            old = store.primary
            old.freeze()
            store.take_over(old)
            store.rejoin(old)

    def lossy(world: World) -> None:
        with world.event("failover that loses acknowledged writes"):
            old = store.primary
            store.cut_replica()
            world.over.wait(1.2)
            old.kill()
            store.take_over(old)
            store.rejoin(old)

    def sentinel(world: World) -> None:
        index = world.rng.randrange(3)
        with world.event("kill a Sentinel"):
            store.kill_sentinel(index)
            world.last(0.5, 2.0)
            store.start_sentinel(index)

    found: dict[str, Fault] = {"kill learner": process_faults("learner")["kill learner"]}
    return found | {"failover that loses acknowledged writes": lossy, "failover after a kill": killed,
                    "failover after a freeze": frozen, "kill a Sentinel": sentinel}  # fmt: skip


def cluster_faults(store: Cluster) -> dict[str, Fault]:
    """A node that goes and comes back, and slots that move under load."""

    def whole(fault: Fault) -> Fault:
        def run(world: World) -> None:
            fault(world)
            store.wait_whole()

        return run

    def move(world: World) -> None:
        with world.event("move a slot"):
            store.move_slot(world.rng.choice(world.stack.pairs).id)
            store.wait_whole()

    found = {name: whole(fault) for name, fault in node_faults(lambda world: world.rng.choice(store.nodes)).items()}
    found |= {name: process_faults("learner")[name] for name in ("kill learner", "freeze learner")}
    return found | {"move a slot": move}
