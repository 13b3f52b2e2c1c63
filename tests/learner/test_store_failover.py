"""A primary that was replaced while it stood still, with real Sentinels."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect
from accord.learner.store.connect import connect_async

PAIR = "target.draft.eagle.greedy.k3-0123abcd"


class Watched:
    """Two servers and a Sentinel that lets a silent one be for half a second."""

    def __init__(self, folder: Path, port: int) -> None:
        self.first = EmbeddedServer(folder / "first").start()
        copy = ["--replicaof", "127.0.0.1", str(self.first.port)]
        self.second = EmbeddedServer(folder / "second", options=copy).start()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {self.first.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 4000\n"
        )
        self._port = port
        self.sentinel = Child("sentinel", [str(self.first._binary), str(config), "--sentinel"], folder / "log")
        self.sentinel.start()
        self.url = f"redis+sentinel://127.0.0.1:{port}/main"
        until(lambda: self.asked("num-slaves") == "1" and self.asked("flags") == "master")

    def asked(self, field: str) -> str:
        """What the Sentinel says of the primary."""
        try:
            with redis.Redis(port=self._port, decode_responses=True, protocol=2) as client:
                found = client.execute_command("SENTINEL", "MASTER", "main")  # type: ignore[no-untyped-call]
        except redis.RedisError:
            return ""
        values = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=False))
        return str(values.get(field, ""))

    def freeze(self) -> None:
        """The first server stands still."""
        assert self.first._child is not None
        self.first._child.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """And wakes up as a second primary: nobody has told it yet."""
        assert self.first._child is not None
        self.first._child.signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends everything."""
        self.sentinel.stop()
        self.thaw()
        self.first.close()
        self.second.close()


@pytest.fixture
def watched(tmp_path: Path, free_port: int) -> Iterator[Watched]:
    """A primary with a replica, watched."""
    found = Watched(tmp_path, free_port)
    try:
        yield found
    finally:
        found.close()


def test_nothing_is_acknowledged_by_a_primary_that_was_replaced(watched: Watched) -> None:
    """A write that the old primary takes after it woke up is made again on the new one before anyone believes it."""
    with Store(connect(watched.url, socket_timeout=120.0)) as store, Store(connect(watched.second.url)) as second:
        store.append(PAIR, b"before")
        until(lambda: len(second.read(PAIR, "0-0", 10)) == 1)
        watched.freeze()

        def wake() -> None:
            until(lambda: watched.asked("port") == str(watched.second.port))
            watched.thaw()

        thread = threading.Thread(target=wake)
        thread.start()
        store.append(PAIR, b"during")
        thread.join()
        store.append(PAIR, b"after")
        assert [body for _, body in second.read(PAIR, "0-0", 10)] == [b"before", b"during", b"after"]


def test_an_idle_connection_asks_before_it_is_used(watched: Watched) -> None:
    """After a pause a command goes to the primary that the Sentinel names now, in both kinds of client."""

    async def ask() -> int:
        client = connect_async(watched.url)
        try:
            await client.ping()
            await asyncio.to_thread(replace)
            return int((await client.info("server"))["tcp_port"])
        finally:
            await client.aclose()

    def replace() -> None:
        watched.freeze()
        until(lambda: watched.asked("port") == str(watched.second.port))
        watched.thaw()
        until(lambda: time.monotonic() > used + 2.5)

    with Store(connect(watched.url)) as store:
        store.append(PAIR, b"x")
        used = time.monotonic()
        assert asyncio.run(ask()) == watched.second.port
        store.append(PAIR, b"y")
    with Store(connect(watched.second.url)) as second:
        assert [body for _, body in second.read(PAIR, "0-0", 10)][-1] == b"y"
