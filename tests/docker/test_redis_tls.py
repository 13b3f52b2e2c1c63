"""TLS to Redis, by the code that every process uses."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.api.harness import KNOTS, PAIR, RunningApi
from tests.certificates import Certificates, issue
from tests.docker.users import Deployed, deployed

from accord.api import Settings
from accord.learner.store import Store, StoreUnavailableError, connect
from accord.learner.store.acl import RedisRole
from accord.learner.store.connect import connect_async

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and a certificate of this machine."""
    return issue(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The server with its users; the one that tests bring along speaks no TLS itself."""
    with deployed(tmp_path_factory.mktemp("users") / "secrets") as running:
        yield running


@contextmanager
def terminating(made: Certificates, port: int) -> Iterator[int]:
    """A port that speaks TLS, and passes what it hears to another."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    ready, loops = threading.Event(), []
    ports: list[int] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(stop: asyncio.Event) -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner, outer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(asyncio.CancelledError):
                await asyncio.gather(pipe(reader, outer), pipe(inner, writer))

        server = await asyncio.start_server(client, "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        loops.append((asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve(asyncio.Event())), name="tls")
    thread.start()
    assert ready.wait(20)
    try:
        yield ports[0]
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)


def with_tls(url: str, port: int, query: str) -> str:
    """The URL of a user, by TLS on another port."""
    return f"rediss://{url.partition('://')[2].rpartition(':')[0]}:{port}/0{query}"


def everything_works(url: Callable[[RedisRole], str]) -> None:
    """Engine, learner and api do what they do, each as itself."""
    with Store(connect(url(RedisRole.ENGINE), role="engine")) as engine:
        engine.register(PAIR, KNOTS)
        engine.append(PAIR.id, b"x")
        engine.heartbeat(PAIR.id, "host/0", b"{}")
    with Store(connect(url(RedisRole.LEARNER), role="learner")) as learner:
        assert len(learner.read(PAIR.id, "0-0", 10)) == 1
        lease = learner.acquire(PAIR.id, "learner", 1000)
        assert lease is not None
        learner.release(lease)
    with RunningApi(Settings(redis_url=url(RedisRole.API))) as api:
        api.ready()
        assert api.get(f"/v1/pairs/{PAIR.id}").status_code == 200
        assert api.get("/readyz").status_code == 200


def test_users_over_tls(stack: Deployed, made: Certificates) -> None:
    """With the authority's file in the URL every process works over TLS, with its own user."""
    with terminating(made, stack.server.port) as port:
        trusted = f"?ssl_ca_certs={made.authority}"
        everything_works(lambda role: with_tls(stack.url(role), port, trusted))


def test_an_unknown_authority(stack: Deployed, made: Certificates) -> None:
    """Without that file, and in clear to a port of TLS, nobody gets a connection, and no password is shown."""
    password = stack.password(RedisRole.ENGINE)
    with terminating(made, stack.server.port) as port:
        for url in (
            with_tls(stack.url(RedisRole.ENGINE), port, ""),
            stack.url(RedisRole.ENGINE).replace(str(stack.server.port), str(port)),
        ):
            with Store(connect(url, role="engine", socket_timeout=2.0)) as engine:
                with pytest.raises(StoreUnavailableError) as caught:
                    engine.append(PAIR.id, b"x")
                assert password not in str(caught.value)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="a server that speaks TLS itself: redis-server")
def test_a_server_with_our_files(made: Certificates, tmp_path: Path) -> None:
    """redis-server starts with redis.conf, tls.conf and users.acl, speaks TLS only, and every process works."""
    from accord.api.auth.deployment import write_secrets

    folder = tmp_path / "secrets"
    write_secrets(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = "".join((ROOT / "docker" / "redis" / name).read_text() for name in ("redis.conf", "tls.conf"))
    (tmp_path / "data").mkdir()
    for there, here in (
        ("/etc/accord/users.acl", folder / "redis" / "users.acl"),
        ("/etc/accord/tls/server.pem", made.certificate),
        ("/etc/accord/tls/server.key", made.key),
        ("/etc/accord/tls/ca.pem", made.authority),
        ("dir /data", f"dir {tmp_path / 'data'}"),
        ("tls-port 6379", f"tls-port {port}"),
    ):
        assert there in text
        text = text.replace(there, str(here))
    (tmp_path / "redis.conf").write_text(text)
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(["redis-server", str(tmp_path / "redis.conf")], stdout=log, stderr=log)

    def url(role: RedisRole) -> str:
        text = (folder / f"{role}.env").read_text().strip().partition("=")[2]
        return text.replace("redis://", "rediss://").replace("@redis:6379", f"@127.0.0.1:{port}") + query

    query = f"?ssl_ca_certs={made.authority}"
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                with Store(connect(url(RedisRole.ENGINE))) as engine:
                    engine.record("a.b")
                break
            except StoreUnavailableError:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        everything_works(url)
    finally:
        server.terminate()
        server.wait(20)


def test_async_clients_take_the_same_urls(made: Certificates) -> None:
    """The api's client reads the same parameters."""
    client = connect_async(f"rediss://h:1/0?ssl_ca_certs={made.authority}")
    assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == str(made.authority)
