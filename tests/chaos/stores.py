"""Three ways to run Redis: one server, Sentinel, Cluster; what can happen to each, and a record of it all."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import redis
from redis.crc import key_slot
from tests.e2e.recorder import recorded
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import _find_binary, _free_port
from accord.learner.pair_learner import Entry
from accord.learner.store import PairKeys
from accord.learner.store.records import stream_id

from .node import Node


def in_order(entries: dict[str, bytes]) -> list[Entry]:
    """Entries by id, as the stream had them."""
    return sorted(entries.items(), key=lambda entry: stream_id("id", entry[0]))


class Standalone:
    """One server on a small disk of its own, whose clock can be moved."""

    def __init__(self, folder: Path, disk_mb: int = 256) -> None:
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        self.mounted = _mount(self.disk, disk_mb)
        self.node = Node(self.disk / "store", fake_time=True)
        self._ballast = self.disk / "ballast"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.node.url

    def start(self) -> None:
        """Starts it."""
        self.node.start()

    def close(self) -> None:
        """Ends it."""
        self.node.thaw()
        self.node.stop()
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.disk)], check=True)

    def fill_disk(self) -> None:
        """Leaves no block free."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(64))

    def free_disk(self) -> None:
        """Gives the space back."""
        self._ballast.unlink(missing_ok=True)

    def entries(self, pair_id: str) -> list[Entry]:
        """All that was learnt, or could have been."""
        return recorded(self.node.folder, pair_id)

    def lost(self, pair_id: str) -> list[Entry]:
        """Acknowledged entries that are gone: none, because every write is on the disk first."""
        return []


class Cluster:
    """Three primaries; slots can move between them."""

    def __init__(self, folder: Path) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"]
        self.nodes = []
        for index in range(3):
            bus = ["--cluster-port", str(_free_port())]
            self.nodes.append(Node(folder / f"node-{index}", [*options, *bus]))

    @property
    def url(self) -> str:
        """Where clients connect."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        """Starts the nodes and joins them."""
        for node in self.nodes:
            node.start()
        edges = [0, 5461, 10923, 16384]
        for index, node in enumerate(self.nodes):
            node.do("CLUSTER", "ADDSLOTSRANGE", edges[index], edges[index + 1] - 1)
            node.do("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in self.nodes[1:]:
            bus = node._argv[node._argv.index("--cluster-port") + 1]
            self.nodes[0].do("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self.wait_whole()

    def close(self) -> None:
        """Ends them."""
        for node in self.nodes:
            node.thaw()
            node.stop()

    def whole(self) -> bool:
        """Whether every node says that all slots are served."""
        with contextlib.suppress(redis.RedisError, OSError):
            infos = [str(node.do("CLUSTER", "INFO")) for node in self.nodes]
            return all("cluster_state:ok" in info and "cluster_known_nodes:3" in info for info in infos)
        return False

    def wait_whole(self) -> None:
        """Returns once all slots are served."""
        until(self.whole, 30.0, "a whole cluster")

    def move_slot(self, pair_id: str) -> None:
        """Moves the slot of a pair to the next node, key by key, while everybody goes on."""
        slot = key_slot(PairKeys(pair_id).rounds.encode())
        source = next(node for node in self.nodes if self._serves(node, slot))
        target = self.nodes[(self.nodes.index(source) + 1) % 3]
        source_id, target_id = (_text(node.do("CLUSTER", "MYID")) for node in (source, target))
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := source.do("CLUSTER", "GETKEYSINSLOT", slot, 10):
            for key in keys:  # type: ignore[attr-defined]
                source.do("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
                time.sleep(0.05)
        for node in (target, source, *self.nodes):
            node.do("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def entries(self, pair_id: str) -> list[Entry]:
        """All that was learnt: a stream that moved left its past in the file of the node it came from."""
        return in_order({key: body for node in self.nodes for key, body in recorded(node.folder, pair_id, moved=True)})

    def lost(self, pair_id: str) -> list[Entry]:
        """None: no node has a replica that could take over without the last writes."""
        return []

    @staticmethod
    def _serves(node: Node, slot: int) -> bool:
        with node.client() as client:
            found = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
        return any(low <= slot <= high and owner[1] == node.port for low, high, owner, *_ in found)


class Sentinels:
    """A primary, a replica, three Sentinels; what a failover loses is read from the old primary's file."""

    def __init__(self, folder: Path, pairs: Sequence[str], down_after_ms: int = 1_500) -> None:
        self.nodes = [Node(folder / f"data-{index}") for index in range(2)]
        self._folder, self._pairs, self._down_after_ms = folder, pairs, down_after_ms
        self._ports = [_free_port() for _ in range(3)]
        self._sentinels: list[Child] = []
        self._known: dict[str, dict[str, bytes]] = {pair_id: {} for pair_id in pairs}
        self._gone: dict[str, dict[str, bytes]] = {pair_id: {} for pair_id in pairs}
        self.failovers = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self._ports) + "/accord"

    @property
    def primary(self) -> Node:
        """Who serves, according to the Sentinels."""
        found = redis.Redis(port=self._ports[0], socket_timeout=2.0, protocol=2, decode_responses=True)
        with found:
            answer = found.execute_command("SENTINEL", "get-master-addr-by-name", "accord")  # type: ignore[no-untyped-call]
        return next(node for node in self.nodes if node.port == int(answer[1]))

    @property
    def replica(self) -> Node:
        """The other one."""
        primary = self.primary
        return next(node for node in self.nodes if node is not primary)

    def start(self) -> None:
        """Starts data nodes, then Sentinels."""
        first, second = self.nodes
        first.start()
        second.extra = ["--replicaof", "127.0.0.1", str(first.port)]
        second.start()
        until(lambda: linked(second), what="the replica's first copy")
        for index, port in enumerate(self._ports):
            place = self._folder / f"sentinel-{index}"
            place.mkdir()
            (place / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\nsentinel monitor accord 127.0.0.1 {first.port} 2\n"
                f"sentinel down-after-milliseconds accord {self._down_after_ms}\n"
                "sentinel failover-timeout accord 4000\n"
            )
            argv = [str(_find_binary()), str(place / "sentinel.conf"), "--sentinel"]
            self._sentinels.append(Child("sentinel", argv, place / "log", cwd=place))
            self._sentinels[-1].start()
        until(self._watched, what="Sentinels that know one another and the replica")

    def close(self) -> None:
        """Ends everything."""
        for sentinel in self._sentinels:
            sentinel.stop()
        for node in self.nodes:
            node.thaw()
            node.stop()

    def kill_sentinel(self, index: int) -> None:
        """One of three may go."""
        self._sentinels[index].kill()

    def start_sentinel(self, index: int) -> None:
        """It comes back."""
        self._sentinels[index].start()

    def cut_replica(self) -> None:
        """The replica hears nothing any more, and cannot ask again."""
        self.replica.do("CONFIG", "SET", "primaryauth", "nobody")
        self.primary.do("CLIENT", "KILL", "TYPE", "replica")

    def take_over(self, old: Node) -> Node:
        """After `old` stopped to answer: waits for the other one, and writes down what the switch lost."""
        new = next(node for node in self.nodes if node is not old)
        before = {pair_id: dict(recorded(old.folder, pair_id)) for pair_id in self._pairs}
        until(lambda: self.primary is new and b"role:master" in _raw(new), 40.0, "a failover")
        with contextlib.suppress(redis.RedisError):
            new.do("CONFIG", "SET", "primaryauth", "")
        # Until something new arrives nobody can tell where the new one's own record begins.
        time.sleep(0.5)
        with self._lock:
            self.failovers += 1
            for pair_id in self._pairs:
                ours = dict(recorded(new.folder, pair_id))
                first = min((stream_id("id", key) for key in ours), default=(1 << 64, 0))
                self._known[pair_id] |= {k: v for k, v in before[pair_id].items() if stream_id("id", k) < first}
                behind = {k: v for k, v in before[pair_id].items() if stream_id("id", k) >= first and k not in ours}
                self._gone[pair_id] |= behind
        return new

    def rejoin(self, old: Node) -> None:
        """The old primary comes back as a replica, and is copied to."""
        if old.child.alive:
            old.thaw()
        else:
            old.extra = ["--replicaof", "127.0.0.1", str(self.primary.port)]
            old.start()
        until(lambda: self._followed(old), 60.0, "the old primary as a replica")
        # Its record must begin before the next failover asks for it.
        until(lambda: all(recorded(old.folder, pair_id) for pair_id in self._pairs), 30.0, "entries at the replica")

    def _followed(self, old: Node) -> bool:
        """Whether it follows by now; until then it may still acknowledge what it then throws away."""
        for pair_id in self._pairs:
            kept = self._known[pair_id]
            late = [entry for entry in recorded(old.folder, pair_id) if entry[0] not in kept]
            ours = dict(recorded(next(node for node in self.nodes if node is not old).folder, pair_id))
            self._gone[pair_id] |= {key: body for key, body in late if key not in ours}
        return linked(old) and self._watched()

    def entries(self, pair_id: str) -> list[Entry]:
        """What the primary's line of descent ever held."""
        return in_order(self._known[pair_id] | dict(recorded(self.primary.folder, pair_id)))

    def lost(self, pair_id: str) -> list[Entry]:
        """Acknowledged, and gone with a primary."""
        return in_order(self._gone[pair_id])

    def _watched(self) -> bool:
        for port in self._ports:
            try:
                with redis.Redis(port=port, socket_timeout=2.0, protocol=2, decode_responses=True) as client:
                    info = str(client.info("sentinel"))
            except (redis.RedisError, OSError):
                return False
            if "'status': 'ok'" not in info or "'slaves': 1" not in info or "'sentinels': 3" not in info:
                return False
        return True


def linked(node: Node) -> bool:
    """Whether it is a replica that has a copy and follows."""
    with contextlib.suppress(redis.RedisError, OSError):
        return b"master_link_status:up" in _raw(node)
    return False


def _raw(node: Node) -> bytes:
    with node.client() as client:
        found = client.info("replication")
    return "\n".join(f"{key}:{value}" for key, value in found.items()).encode()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _mount(folder: Path, size_mb: int) -> bool:
    """A disk of its own in memory, where that is allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "accord-chaos", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
