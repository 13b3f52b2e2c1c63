from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.hooks.harness import KNOTS, PAIR
from tests.proxy import TcpProxy

from accord.hooks.doctor.facts import Facts
from accord.hooks.doctor.redis_checks import check_redis
from accord.hooks.doctor.report import Check, Status
from accord.hooks.settings import AgentSettings
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import PairKeys, Store, connect

KEYS = PairKeys(PAIR.id)
CONNECTING = ("+client|setname", "+client|setinfo")
REGISTERING = ("+evalsha", "+script|load", "(+time +evalsha +hsetnx +hget ~accord:pairs)", "+time")
APPENDING, BEATING = "(+xadd ~accord:{*}:rounds)", "(+hset ~accord:{*}:engines)"
ENGINE = (*CONNECTING, *REGISTERING, APPENDING, BEATING)
"""The least that an engine needs."""

PASSWORD = "correct-horse"


@pytest.fixture
def own(store: Store) -> Iterator[Store]:
    """The store, which loses its users and limits afterwards."""
    yield store
    admin = store.client
    admin.config_set("maxmemory", "0")
    admin.execute_command("ACL", "DELUSER", "engine")
    admin.execute_command("ACL", "LOG", "RESET")


def user(store: Store, server: EmbeddedServer, *rules: str) -> str:
    """A user with these rights only, and the URL for it."""
    store.client.execute_command("ACL", "SETUSER", "engine", "reset", "on", f">{PASSWORD}", *rules)
    return f"redis://engine:{PASSWORD}@127.0.0.1:{server.port}/0"


def examine(url: str, seconds: float = 2.0, pair: bool = True) -> tuple[dict[str, Check], Facts]:
    """The findings by name."""
    settings = AgentSettings.from_env({}, redis_url=url, knots=KNOTS, engine="host/0")
    facts = Facts({}, settings, PAIR if pair else None)
    return {check.name: check for check in check_redis(facts, seconds)}, facts


def test_a_plain_server(store: Store, server: EmbeddedServer) -> None:
    """On a server without users everything works, and nothing is left behind."""
    found, facts = examine(server.url)
    assert {check.status for check in found.values()} == {Status.OK}
    assert set(found) == {
        "redis.reach",
        "redis.server",
        "redis.append",
        "redis.heartbeat",
        "redis.register",
        "redis.privileges",
    }
    assert (facts.redis_works, facts.registered) == (True, False)
    assert store.client.keys("*") == []
    assert abs(facts.skews_s["Redis"][0]) < 1.0


def test_the_least_rights_suffice(own: Store, server: EmbeddedServer) -> None:
    """With an engine's rights and no more the doctor is content, and leaves nothing but its INFO in the ACL log."""
    found, facts = examine(user(own, server, *ENGINE))
    assert found.pop("redis.server").status is Status.SKIP
    assert {check.status for check in found.values()} == {Status.OK}
    assert "no more rights" in found["redis.privileges"].found
    assert facts.redis_works is True
    assert own.client.keys("*") == []
    log = own.client.execute_command("ACL", "LOG")
    assert [entry for entry in log if b"info" not in entry] == []


def test_old_servers_have_no_setinfo(own: Store, server: EmbeddedServer) -> None:
    """CLIENT SETINFO, which Redis 7.0 does not know, is no right that an engine needs."""
    found, _ = examine(user(own, server, *(rule for rule in ENGINE if rule != "+client|setinfo")))
    assert not any(check.status is Status.FAIL for check in found.values())


def test_the_least_rights_suffice_for_an_engine(own: Store, server: EmbeddedServer) -> None:
    """What the doctor calls enough is enough for what the engine's publisher does."""
    url = user(own, server, *ENGINE)
    with Store(connect(url, role="engine")) as engine:
        assert engine.register(PAIR, KNOTS).knots == KNOTS
        engine.append(PAIR.id, b"payload")
        engine.heartbeat(PAIR.id, "host/0", b"{}")


@pytest.mark.parametrize(
    ("lacking", "failing"),
    [
        (APPENDING, "redis.append"),
        (BEATING, "redis.heartbeat"),
        (REGISTERING[2], "redis.reach"),
    ],
)
def test_a_missing_right_is_named(own: Store, server: EmbeddedServer, lacking: str, failing: str) -> None:
    """Every right that an engine needs and does not have fails its own check, with the right to grant."""
    found, facts = examine(user(own, server, *(rule for rule in ENGINE if rule != lacking)))
    failed = [check.name for check in found.values() if check.status is Status.FAIL]
    assert failed == [failing]
    assert "+" in found[failing].advice
    assert PASSWORD not in str(found)
    assert facts.redis_works is False
    assert own.client.keys("*") == []


def test_no_right_to_register(own: Store, server: EmbeddedServer) -> None:
    """Reading the register is not enough for the first engine of a pair."""
    rules = [rule.replace("+hsetnx ", "") for rule in ENGINE]
    found, _ = examine(user(own, server, *rules))
    assert found["redis.register"].status is Status.FAIL
    assert "register a pair" in found["redis.register"].found


def test_rights_of_another_pair_do_not_count(own: Store, server: EmbeddedServer) -> None:
    """An engine that may append to another pair's rounds only is told so."""
    rules = [rule.replace("{*}:rounds", "{other}:rounds") for rule in ENGINE]
    found, _ = examine(user(own, server, *rules))
    assert found["redis.append"].status is Status.FAIL


def test_too_many_rights(own: Store, server: EmbeddedServer) -> None:
    """A user who could forge coefficients is seen as one."""
    found, _ = examine(user(own, server, "+@all", "~*"))
    assert "may also write coefficients, state, history, lease" in found["redis.privileges"].found


@pytest.mark.parametrize("password", ["wrong", ""])
def test_refused_credentials(own: Store, server: EmbeddedServer, password: str) -> None:
    """A wrong or missing password is said to be one, and is not shown."""
    user(own, server, *ENGINE)
    own.client.config_set("requirepass", "something")
    try:
        url = f"redis://engine:{password}@127.0.0.1:{server.port}" if password else f"redis://127.0.0.1:{server.port}"
        found, facts = examine(url)
    finally:
        own.client.config_set("requirepass", "")
    assert list(found) == ["redis.reach"]
    assert "password" in found["redis.reach"].advice
    assert "wrong@" not in found["redis.reach"].found
    assert facts.redis_works is False


def test_a_full_server(own: Store, server: EmbeddedServer) -> None:
    """A server that takes no writes now is told from one that forbids them."""
    own.client.config_set("maxmemory", "1")
    found, _ = examine(server.url)
    assert [found[name].status for name in ("redis.append", "redis.heartbeat")] == [Status.FAIL] * 2
    assert "memory" in found["redis.append"].advice


def test_eviction_is_warned_of(own: Store, server: EmbeddedServer) -> None:
    """A server that may evict what was learnt is warned of."""
    own.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        found, _ = examine(server.url)
    finally:
        own.client.config_set("maxmemory-policy", "noeviction")
    assert found["redis.server"].status is Status.WARN


def test_the_registered_pair_is_read(store: Store, server: EmbeddedServer) -> None:
    """The knots of a registered pair are found, and its record stays as it was."""
    store.register(PAIR, (1.0,))
    before = store.client.hgetall("accord:pairs")
    _, facts = examine(server.url)
    assert (facts.registered, facts.knots) == (True, (1.0,))
    assert store.client.hgetall("accord:pairs") == before


def test_nobody_listens(free_port: int) -> None:
    """A dead address fails within the limit."""
    began = time.monotonic()
    found, _ = examine(f"redis://127.0.0.1:{free_port}", 1.0)
    assert found["redis.reach"].status is Status.FAIL
    assert time.monotonic() - began < 3.0


def test_a_server_that_says_nothing(store: Store, proxy: TcpProxy) -> None:
    """A server that accepts and stays silent fails within the limit."""
    proxy.delay(10.0)
    began = time.monotonic()
    found, _ = examine(f"redis://127.0.0.1:{proxy.port}", 0.5)
    assert found["redis.reach"].status is Status.FAIL
    assert time.monotonic() - began < 3.0


def test_without_a_pair_only_the_server_is_checked(store: Store, server: EmbeddedServer) -> None:
    """Rights that depend on a pair are said not to be checked."""
    found, _ = examine(server.url, pair=False)
    assert found["redis.append"].status is Status.SKIP
