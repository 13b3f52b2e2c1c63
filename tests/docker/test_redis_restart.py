"""A restart of Redis with the users of a deployment: nothing that was written is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from tests.api.harness import KNOTS, PAIR, Publisher
from tests.waiting import until

from accord.api.auth.deployment import write_secrets
from accord.learner.embedded import _find_binary
from accord.learner.store import Store, connect
from accord.learner.store.acl import RedisRole

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def server(binary: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Redis as compose runs it, with the deployment's users from the start."""
    text = (ROOT / "docker/redis/redis.conf").read_text()
    here = {"dir /data": f"dir {folder}", "/etc/accord/users.acl": str(folder / "secrets/redis/users.acl")}
    for place, ours in here.items():
        assert place in text
        text = text.replace(place, ours)
    (folder / "redis.conf").write_text(text)
    arguments = [str(folder / "redis.conf"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    arguments += ["--logfile", str(folder / "redis.log")]
    with (
        subprocess.Popen([binary, *arguments]) as process,
        redis.Redis(port=port, username="health", password="any") as client,
    ):

        def ready() -> bool:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.BusyLoadingError):
                assert process.poll() is None
                return False

        try:
            until(ready)
            yield process
        finally:
            process.kill()


def content(client: redis.Redis) -> dict[bytes, object]:
    """Every key of accord with all that it holds."""
    read = {b"hash": client.hgetall, b"stream": client.xrange, b"zset": lambda key: client.zrange(key, 0, -1)}
    return {key: read[client.type(key)](key) for key in client.keys("accord:*")}


def written(client: redis.Redis) -> bool:
    """Whether the append-only file holds every command."""
    told = client.info("persistence")
    return bool(told["aof_buffer_length"] == 0 and told["aof_pending_bio_fsync"] == 0)


@pytest.mark.parametrize("which", ["valkey", "redis-server"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_loses_nothing(tmp_path: Path, free_port: int, which: str, how: signal.Signals) -> None:
    """What learner and engines wrote by script and by command is all there when Redis comes back, however it ended."""
    binary = str(_find_binary()) if which == "valkey" else shutil.which(which)
    if binary is None:
        pytest.skip(f"no {which} on this machine")
    write_secrets(tmp_path / "secrets")

    def store(role: RedisRole) -> Store:
        url = (tmp_path / "secrets" / f"{role}.env").read_text().strip().partition("=")[2]
        return Store(connect(url.replace("@redis:6379", f"@127.0.0.1:{free_port}")))

    admin = {"username": "admin", "password": (tmp_path / "secrets/redis-admin.password").read_text().strip()}
    with server(binary, tmp_path, free_port) as process:
        with (
            store(RedisRole.ENGINE) as engine,
            store(RedisRole.LEARNER) as learner,
            redis.Redis(port=free_port, **admin) as everything,
        ):
            engine.register(PAIR, KNOTS)
            publisher = Publisher(learner, registered=True)
            for level in range(3):
                engine.append(PAIR.id, b"round")
                publisher.publish(b"state", code_greedy=float(level))
            before = content(everything)
            # Synced by the second: what the disk is too busy to take waits in the server.
            until(lambda: written(everything), what="the append-only file lags")
        process.send_signal(how)
        assert process.wait(20) is not None
    with server(binary, tmp_path, free_port), redis.Redis(port=free_port, **admin) as everything:
        assert content(everything) == before
        assert len(before) >= 5
