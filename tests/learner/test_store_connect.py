from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import RedisClusterException
from tests.conftest import undeclared_keys
from tests.proxy import TcpProxy

from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import InvalidValue
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import (
    Commit,
    Publication,
    Store,
    StoreError,
    StoreUnavailableError,
    WatermarkMovedError,
    connect,
    connect_async,
    safe_url,
    unavailable,
)

PAIR = "target.draft.eagle.greedy.k5-0123abcd"


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Polls with a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def exercise(store: Store) -> None:
    """Everything that the store does, once."""
    pair = Pair("t", "d", Method.EAGLE, DraftSampling.GREEDY, 3)
    assert store.register(pair, ()) == store.pairs()[pair.id]
    store.announce("me", 60_000)
    assert store.learners() == ["me"]
    store.heartbeat(PAIR, "engine", b"x")
    assert store.engines(PAIR) == {"engine": b"x"}
    first = store.append(PAIR, b"one")
    store.append("another-pair", b"two")
    entries = store.read_many({PAIR: "0-0", "another-pair": "0-0", "third": "0-0"}, 10)
    assert [[payload for _, payload in found] for found in entries.values()] == [[b"one"], [b"two"], []]
    lease = store.acquire(PAIR, "me", 60_000)
    assert lease is not None
    assert store.renew(lease, 60_000)
    assert store.lease_holder(PAIR) is not None
    store.commit(lease, Commit("0-0", first, b"body", b"", b"", 1, [Publication(1, b"table", b"entry", 1)]))
    with pytest.raises(WatermarkMovedError):
        store.commit(lease, Commit("0-0", first, b"other", b"", b"", 1))
    assert store.backlog(PAIR, first) == (0, None)
    assert store.load(PAIR).body == b"body"
    assert store.coefficients(PAIR) is not None
    assert len(store.history(PAIR, 10)) == 1
    assert store.release(lease)
    store.retire("me")
    assert store.forget_engines(PAIR, ["engine"]) == 1
    assert undeclared_keys(store) == []


def test_works_over_tcp(server: EmbeddedServer) -> None:
    """Every method works on one server, whose list of clients shows who is connected."""
    with Store(connect(server.url, role="learner")) as store:
        store.client.flushall()
        exercise(store)
        assert not store.clustered
        assert store.client.client_getname() == "accord-learner"


def test_works_over_a_unix_socket(tmp_path: Path) -> None:
    """Every method works over a socket file."""
    path = tmp_path / "s"
    with EmbeddedServer(options=["--unixsocket", str(path)]), Store(connect(f"unix://{path}?db=1")) as store:
        exercise(store)


def test_works_on_a_cluster(free_port: int) -> None:
    """Every method works in cluster mode, where a script that touches two slots would be refused."""
    with EmbeddedServer(options=["--cluster-enabled", "yes", "--cluster-port", str(free_port)]) as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO"))
        with Store(connect(f"redis+cluster://127.0.0.1:{server.port}")) as store:
            assert store.clustered
            exercise(store)
            server.kill()
            with pytest.raises(StoreUnavailableError):
                store.load(PAIR)
            server.start()
            wait_until(lambda: answers(store))
            assert store.load(PAIR).body == b"body"
        assert asyncio.run(ping(f"redis+cluster://127.0.0.1:{server.port}"))


@pytest.fixture
def sentinel(tmp_path: Path, server: EmbeddedServer, free_port: int) -> Iterator[int]:
    """The port of a real Sentinel that watches the server."""
    binary = EmbeddedServer()._binary
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {free_port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
    process = subprocess.Popen([binary, config, "--sentinel"], stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        with redis.Redis(port=free_port) as client:

            def up() -> bool:
                try:
                    return bool(client.ping())
                except redis.ConnectionError:
                    return False

            wait_until(up)
        yield free_port
    finally:
        process.kill()
        process.wait()


def test_works_through_sentinel(sentinel: int, free_port: int, store: Store) -> None:
    """The primary is found through the first Sentinel that answers, and every method works on it."""
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel}/main?db=0"
    with Store(connect(url)) as far:
        exercise(far)
    assert asyncio.run(ping(url))
    with Store(connect(url.replace("/main", "/other"))) as lost, pytest.raises(StoreUnavailableError):
        lost.load(PAIR)


async def ping(url: str) -> bool:
    """One command through the asyncio client."""
    async with connect_async(url, role="api") as client:
        return bool(await client.execute_command("PING"))


def test_the_async_client_works(server: EmbeddedServer) -> None:
    """The asyncio client reaches the same server, gives bytes, and has a name."""

    async def scenario() -> None:
        async with connect_async(server.url, role="api") as client:
            assert await client.client_getname() in ("accord-api", b"accord-api")

    asyncio.run(scenario())


def answers(store: Store) -> bool:
    """Whether the store serves now."""
    try:
        store.load(PAIR)
    except StoreUnavailableError:
        return False
    return True


def test_an_outage_passes(store: Store, proxy: TcpProxy) -> None:
    """While the network is cut every method raises StoreUnavailableError, and afterwards the same store works."""
    with Store(connect(proxy.url)) as far:
        lease = far.acquire(PAIR, "me", 60_000)
        assert lease is not None
        commit = Commit("0-0", "1-0", b"body", b"", b"", 0)
        proxy.cut()
        calls: list[Callable[[], object]] = [
            lambda: far.append(PAIR, b"x"),
            lambda: far.load(PAIR),
            lambda: far.read_many({PAIR: "0-0"}, 1),
            lambda: far.backlog(PAIR, "0-0"),
            lambda: far.commit(lease, commit),
            lambda: far.acquire(PAIR, "me", 60_000),
            far.pairs,
            far.learners,
        ]
        for call in calls:
            with pytest.raises(StoreUnavailableError):
                call()
        proxy.restore()
        far.commit(lease, commit)
        assert store.load(PAIR).body == b"body"


def test_a_silent_network_is_an_outage(store: Store, proxy: TcpProxy) -> None:
    """A server that does not answer within the socket timeout counts as out of reach, and no call waits for ever."""
    with Store(connect(proxy.url, socket_timeout=0.05)) as far:
        far.load(PAIR)
        proxy.delay(30.0)
        begin = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            far.load(PAIR)
        assert time.monotonic() - begin < 10
        proxy.delay(0.0)
        proxy.close()


def test_a_killed_server_comes_back() -> None:
    """A store whose server was killed and started again continues with everything that was acknowledged."""
    with EmbeddedServer() as server, Store(connect(server.url)) as store:
        ids = [store.append(PAIR, b"x") for _ in range(20)]
        server.kill()
        with pytest.raises(StoreUnavailableError):
            store.append(PAIR, b"x")
        server.start()
        assert [entry_id for entry_id, _ in store.read(PAIR, "0-0", 100)] == ids
        assert store.acquire(PAIR, "me", 1000) is not None


def test_scripts_are_loaded_again(store: Store) -> None:
    """A server that forgot its scripts, as after a failover, gets them again."""
    assert store.acquire(PAIR, "me", 60_000) is not None
    store.client.script_flush()
    assert store.acquire(PAIR, "me", 60_000) is not None


def test_a_full_server_takes_no_evidence_but_commits() -> None:
    """Without memory evidence is refused as an outage, while leases and commits go on: only they make room."""
    with EmbeddedServer() as server, Store(connect(server.url)) as store:
        lease = store.acquire(PAIR, "me", 60_000)
        assert lease is not None
        store.append(PAIR, b"x", entry_id="1-0")
        store.client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailableError):
            store.append(PAIR, b"x")
        assert store.renew(lease, 60_000)
        store.commit(lease, Commit("0-0", "1-0", b"body", b"", b"", 1, [Publication(1, b"t", b"e", 1)]))
        assert store.load(PAIR).body == b"body"
        assert store.backlog(PAIR, "0-0") == (0, None)
        store.client.config_set("maxmemory", "0")


def test_a_wrong_address_is_unavailable(free_port: int) -> None:
    """Nobody listening is an outage, for a server at the first command and for a cluster at once."""
    with Store(connect(f"redis://127.0.0.1:{free_port}")) as store, pytest.raises(StoreUnavailableError):
        store.load(PAIR)
    with pytest.raises(StoreUnavailableError):
        connect(f"redis+cluster://127.0.0.1:{free_port}")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.ConnectionError("refused"), True),
        (redis.TimeoutError("slow"), True),
        (redis.BusyLoadingError("loading"), True),
        (redis.ReadOnlyError("replica"), True),
        (redis.OutOfMemoryError("full"), True),
        (RedisClusterException("no node"), True),
        (redis.ResponseError("MISCONF cannot write to disk"), True),
        (redis.ResponseError("-BUSY a script runs"), True),
        (redis.ResponseError("WRONGTYPE"), False),
        (redis.DataError("bad"), False),
        (StoreUnavailableError("out"), True),
        (StoreError("no"), False),
        (ValueError("x"), False),
    ],
)
def test_tells_outages_from_mistakes(error: Exception, expected: bool) -> None:
    """Only errors that may pass by themselves count as an outage."""
    assert unavailable(error) is expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://user:hunter2@host",
        "redis://user:hunter2@",
        "redis://:hun/ter2@host:6379/0",
        "redis://:hunter2@host:port/0",
        "redis://:hunter2@host:0",
        "redis://:hunter2@host:70000",
        "redis://:hunter2@[::1",
        "redis://:hunter2@host/abc",
        "redis://:hunter2@host/0/1",
        "redis://:hunter2@a,b/0",
        "redis://:hunter2@host?password=hunter2",
        "redis://:hunter2@host?decode_responses=true",
        "redis://:hunter2@host?socket_timeout=soon",
        "redis://:hunter2@host?socket_timeout=0",
        "redis://:hunter2@host?socket_timeout=nan",
        "redis+sentinel://:hunter2@a:1,b:2",
        "redis+sentinel://:hunter2@a:1,/main",
        "redis+sentinel://:hunter2@a:1/main/0?sentinel_password=hunter2",
        "redis+cluster://:hunter2@a:1/3",
        "unix://:hunter2@host/path",
        "unix://",
    ],
)
def test_a_bad_url_is_named_without_its_password(url: str) -> None:
    """A URL that cannot be used is shown with what is wrong and without its secrets."""
    for way in (connect, connect_async):
        with pytest.raises(InvalidValue) as caught:
            way(url)
        assert "hunter" not in str(caught.value)
        assert "ter2" not in str(caught.value)


def test_credentials_and_options_reach_the_client() -> None:
    """User, password, database and options of the URL are decoded, and arguments win over them."""
    with connect("rediss://us%40er:pa%2Fss@host:7000/3?socket_timeout=1.5&ssl_cert_reqs=none", db=4) as client:
        values = client.connection_pool.connection_kwargs
        assert (values["username"], values["password"], values["db"]) == ("us@er", "pa/ss", 4)
        assert (values["host"], values["port"], values["socket_timeout"]) == ("host", 7000, 1.5)
        assert values["socket_connect_timeout"] == 2.0
        assert client.connection_pool.connection_class is redis.SSLConnection
    with connect("redis://[::1]/2") as client:
        values = client.connection_pool.connection_kwargs
        assert (values["host"], values["port"], values["db"], values.get("username")) == ("::1", 6379, 2, None)


def test_a_bad_role_is_named() -> None:
    """A role that Redis would not accept as a client name is named."""
    with pytest.raises(InvalidValue, match=r"^role ="):
        connect("redis://host", role="a b")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://:p@host", "redis://***@host"),
        ("redis://u:p@ss@host", "redis://***@host"),
        (
            "redis+sentinel://u:p@a,b/main?sentinel_password=p&db=1",
            "redis+sentinel://***@a,b/main?sentinel_password=***&db=1",
        ),
        ("u:p@host", "***@host"),
    ],
)
def test_safe_urls_hide_secrets(url: str, shown: str) -> None:
    """Whatever stands where credentials stand is hidden, and the rest is kept."""
    assert safe_url(url) == shown
