"""The Redis users of a deployment, on a real server: all that each of them does is allowed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from tests.api.harness import RunningApi
from tests.docker.users import Deployed, deployed
from tests.waiting import until

from accord.api import Settings
from accord.api.auth.table import LEAST, routes_of
from accord.hooks.doctor.facts import Facts
from accord.hooks.doctor.redis_checks import check_redis
from accord.hooks.settings import AgentSettings
from accord.learner.evaluate.trace import Trace
from accord.learner.service.loop import LearnerService
from accord.learner.service.pair_time import PairTime
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import PairKeys, Store, StoreError, connect
from accord.learner.store.acl import DEFAULT, RedisRole, RedisUser, create, rules, template

ROOT = Path(__file__).parent.parent.parent
KEYS = PairKeys("a.b")
PARTS = [*KEYS.all(), "accord:pairs", "accord:learners", "other"]
FOR_EVERYBODY = {"auth", "hello", "quit", "reset"}
"""What a server lets anybody do, logged in or not."""
WITHOUT_KEYS = {
    RedisRole.ENGINE: {"time"},
    RedisRole.LEARNER: {"time", "ping", "xread"},
    RedisRole.API: {"time", "ping", "unsubscribe", "xread"},
}
"""Commands that were tried with no key, or that a name of a key does not fit as one (XREAD without STREAMS)."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The server with its users."""
    with deployed(tmp_path_factory.mktemp("users") / "secrets") as running:
        yield running


def allowed(stack: Deployed, user: str, key: str) -> set[str]:
    """Every command that the server would let a user run on a key."""
    found = set()
    for name, command in stack.admin.execute_command("COMMAND").items():
        arguments = [key] * (abs(command["arity"]) - 1)
        if name in ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"):
            arguments = ["x", "1", key]
        try:
            answer = stack.admin.execute_command("ACL", "DRYRUN", user, name, *arguments)
        except redis.ResponseError:
            # A container of subcommands, which are looked at below.
            continue
        if answer in (b"OK", True):
            found.add(name)
    return found - FOR_EVERYBODY


def category(stack: Deployed, name: str) -> set[str]:
    """The commands of an ACL category."""
    return {item.decode().lower() for item in stack.admin.execute_command("ACL", "CAT", name)}


def test_the_file_is_what_the_command_prints() -> None:
    """The file in the repository holds the rules of all roles, and no password."""
    text = (ROOT / "docker" / "redis" / "users.acl").read_text()
    assert text == template()
    assert "#" not in text
    assert ">" not in text


def test_an_engine(stack: Deployed) -> None:
    """An engine appends to rounds, beats its heart and registers a pair; it neither reads nor writes anything else."""
    expected = {
        KEYS.rounds: {"xadd"},
        KEYS.engines: {"hset"},
        "accord:pairs": {"evalsha", "hget", "hsetnx"},
    }
    for key in PARTS:
        assert allowed(stack, "engine", key) == expected.get(key, set()) | WITHOUT_KEYS[RedisRole.ENGINE], key


def test_the_api(stack: Deployed) -> None:
    """The api reads everything; it writes overrides, coefficients, history and audit, and cannot shorten a stream."""
    writing = category(stack, "write")
    for key in PARTS:
        found = allowed(stack, "api", key)
        # Calling a script asks for all rights on its keys; what the script does is checked again.
        found -= {"eval", "evalsha"} if key.startswith("accord:") else set()
        if key in (KEYS.overrides, KEYS.coefficients, KEYS.history, KEYS.audit):
            assert found & writing == {"hset", "hsetnx", "hdel", "hincrby", "xadd"}, key
        else:
            assert found & writing == set(), key
        assert ("hgetall" in found) is (key != "other"), key


def test_the_learner(stack: Deployed) -> None:
    """A learner does all with a pair that learning needs; it does not alter the register of pairs."""
    writing = category(stack, "write")
    assert allowed(stack, "learner", "accord:pairs") & writing == set()
    for key in KEYS.all():
        found = allowed(stack, "learner", key)
        assert {"hset", "xadd", "xtrim", "hmget"} <= found
        assert ("del" in found) is (key == KEYS.rounds), key
    assert allowed(stack, "learner", "other") == WITHOUT_KEYS[RedisRole.LEARNER]


@pytest.mark.parametrize("role", list(RedisRole))
def test_no_administration(stack: Deployed, role: RedisRole) -> None:
    """No role administers the server, lists keys, or loads code that stays."""
    forbidden = category(stack, "admin") | category(stack, "dangerous")
    for key in PARTS:
        assert allowed(stack, role, key) & forbidden == set()
    with redis.Redis.from_url(stack.url(role)) as client:
        for command in (
            "CONFIG SET maxmemory 0",
            "CONFIG GET requirepass",
            "ACL LIST",
            "ACL SETUSER engine allkeys",
            "CLIENT LIST",
            "CLIENT KILL TYPE normal",
            "SCRIPT FLUSH",
            "FUNCTION FLUSH",
            "FLUSHALL",
            "SHUTDOWN NOSAVE",
            "KEYS *",
            "SCAN 0",
            "INFO",
            "MONITOR",
            "PSUBSCRIBE *",
            "SUBSCRIBE other",
            "PUBLISH other x",
            "XGROUP DESTROY accord:{a.b}:rounds x",
            "SET other 1",
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())
    stack.refused()


def test_whoever_has_not_logged_in(stack: Deployed) -> None:
    """Without a name a connection may do nothing, as `health` ask PING, and nobody can be the default user."""
    assert allowed(stack, "health", KEYS.rounds) == {"ping"}
    with redis.Redis(port=stack.server.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with redis.Redis(port=stack.server.port, username="health", password="any") as client:
        assert client.ping() is True
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get("other")
    for name, password in (("engine", ""), ("default", ""), ("default", "any")):
        with (
            redis.Redis(port=stack.server.port, username=name, password=password) as client,
            pytest.raises(redis.RedisError),
        ):
            client.time()
    stack.refused()


@pytest.mark.parametrize("write", ["HSET coefficients", "HSET state", "XADD history", "HSET lease", "HSET overrides"])
def test_an_engine_cannot_forge_by_script(stack: Deployed, write: str) -> None:
    """A script of an engine's own may not write what the engine may not, however the key is passed."""
    command, part = write.split()
    key = getattr(KEYS, part)
    start = "'*', " if command == "XADD" else ""
    call = f"'{command}', '{key}', {start}'a', 'b'"
    with Store(connect(stack.url(RedisRole.ENGINE))) as engine:
        for keys in (["accord:pairs"], [key]):
            with pytest.raises(redis.ResponseError, match=r"(?i)permission"):
                engine.client.register_script(f"return redis.call({call})")(keys=keys)
    assert stack.admin.exists(key) == 0
    stack.refused()


def test_an_engine_of_one_pair(stack: Deployed) -> None:
    """An engine bound to a pair writes to that pair only."""
    password, user = create(RedisRole.ENGINE, "a.b")
    assert user.name == "engine-a.b"
    stack.admin.execute_command("ACL", "SETUSER", user.name, *user.line().split()[2:])
    url = f"redis://{user.name}:{password}@127.0.0.1:{stack.server.port}/0"
    with Store(connect(url)) as engine:
        engine.append("a.b", b"x")
        engine.heartbeat("a.b", "host/0", b"{}")
        for refused in (lambda: engine.append("other", b"x"), lambda: engine.heartbeat("other", "host/0", b"{}")):
            with pytest.raises(StoreError, match=r"(?i)permission"):
                refused()
    stack.admin.delete(KEYS.rounds, KEYS.engines)
    stack.refused()


def test_rules_of_others_are_not_bound_to_a_pair() -> None:
    """Only an engine can be bound to a pair, and only to one that is a pair id."""
    for role, pair in ((RedisRole.API, "a.b"), (RedisRole.ENGINE, "a*")):
        with pytest.raises(ValueError, match="pair"):
            rules(role, pair)
    assert RedisUser("x", rules(RedisRole.API)).line().startswith("user x on resetkeys")
    assert DEFAULT.line() == "user default off resetpass ~* &* +@all"


def test_the_doctor_is_content(stack: Deployed) -> None:
    """With an engine's user `accord doctor` finds every right that is needed, and none beside."""
    pair = Trace.bundled().pair
    settings = AgentSettings.from_env({}, redis_url=stack.url(RedisRole.ENGINE), engine="host/0")
    found = {check.name: check for check in check_redis(Facts({}, settings, pair), 5.0)}
    assert {name for name, check in found.items() if check.status.value not in ("ok", "skip")} == set()
    assert found["redis.privileges"].found.startswith("no more rights than an engine needs")
    stack.refused()


def test_the_whole_loop(stack: Deployed) -> None:
    """Engine, learner and api do all their work with their own users, and the server has refused them nothing."""
    pair = Trace.bundled().pair
    service = LearnerService(LearnerSettings(redis_url=stack.url(RedisRole.LEARNER)))
    learning = threading.Thread(target=service.run, name="learner")
    learning.start()
    try:
        with RunningApi(Settings(redis_url=stack.url(RedisRole.API))) as api:
            api.ready()
            environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
            environment |= {"ACCORD_REDIS_URL": stack.url(RedisRole.ENGINE), "ACCORD_API_URL": api.url}
            played = subprocess.run(
                [sys.executable, "-m", "accord.hooks.replay", "--steps", "300", "--engine", "replay/0"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert played.returncode == 0, played.stderr
            until(lambda: api.get(f"/v1/pairs/{pair.id}/coefficients").headers["accord-version"] != "0")
            assert api.get(f"/v1/pairs/{pair.id}").status_code == 200
            until(lambda: api.get(f"/v1/pairs/{pair.id}").json()["lag"]["entries"] == 0)
            assert [item["engine"] for item in api.get(f"/v1/pairs/{pair.id}").json()["engines"]] == ["replay/0"]
            _every_write(api, pair.id)
            _every_read(api, pair.id)
    finally:
        service.stop()
        learning.join(30)
    assert stack.refused() == []


def _every_write(api: RunningApi, pair_id: str) -> None:
    """Overrides a workload and the pair, lifts both, lets one expire, and rolls back."""
    pair = f"/v1/pairs/{pair_id}"
    change = {"kind": "shift", "shift": 0.25, "reason": "test", "actor": "tester"}
    for scope in (f"{pair}/workloads/code:greedy", pair):
        for method, body in (("PUT", change), ("DELETE", {"reason": "test", "actor": "tester"})):
            answer = api.client.request(method, f"{scope}/override", json=body, headers={"If-Match": "*"})
            assert answer.status_code == 200, answer.text
    before = int(api.get(f"{pair}/coefficients").headers["accord-version"])
    back = {"version": 1, "hold": False, "reason": "test", "actor": "tester"}
    answer = api.client.post(f"{pair}/rollback", json=back, headers={"If-Match": "*"})
    assert answer.status_code == 200, answer.text
    assert api.client.put(f"{pair}/override", json={**change, "expires_in_s": 1}, headers={"If-Match": "*"}).is_success
    until(lambda: api.get(f"{pair}/override").status_code == 404)
    assert int(api.get(f"{pair}/coefficients").headers["accord-version"]) > before


def _every_read(api: RunningApi, pair_id: str) -> None:
    """Asks every GET route that ends."""
    for method, path in sorted(routes_of(api.app)):
        if method != "GET" or path == "/v1/events" or LEAST[method, path] == "open":
            continue
        filled = path.replace("{pair}", pair_id).replace("{key}", "code:greedy")
        answer = httpx.get(f"{api.url}{filled}", timeout=30)
        assert answer.status_code < 500, (path, answer.text)


def test_a_learner_renews_many_leases_and_moves_ids(stack: Deployed) -> None:
    """With its own user a learner keeps more than one pair, and goes on when the server's clock went back."""
    stack.admin.execute_command("SCRIPT", "FLUSH")
    with Store(connect(stack.url(RedisRole.LEARNER))) as store:
        leases = [store.acquire(f"many-{index}", "one", 60_000) for index in range(3)]
        held = [lease for lease in leases if lease is not None]
        assert store.renew_all(held, 60_000) == []
        stack.admin.execute_command("SCRIPT", "FLUSH")
        assert store.renew_all(held, 60_000) == []
        now = store.clock_ms("many-0") // 250 * 250
        store.append("many-0", b"x", entry_id=f"{now}-0")
        store.append("many-0", b"y", entry_id=f"{now}-1")
        assert store.move_on(held[0], now, now + 5_000, 250, f"{now}-0") == now + 250
        assert store.move_on(held[0], now + 500, now + 5_000, 250) == now + 500
        stack.admin.delete(*PairKeys("many-0").all())


def test_a_learner_with_the_rights_of_before_learns_by_the_clock(stack: Deployed) -> None:
    """Without the right to move ids learning goes on, and what would need it waits for the clock."""
    older = [rule.replace(" +xdel +xsetid", "") for rule in rules(RedisRole.LEARNER)]
    stack.admin.execute_command("ACL", "SETUSER", "older", "on", ">secret", *older)
    url = stack.url(RedisRole.LEARNER)
    with Store(connect(url, username="older", password="secret")) as store:
        lease = store.acquire("older-0", "one", 60_000)
        assert lease is not None
        store.append("older-0", b"x", entry_id="1000-0")
        time = PairTime(store, lease)
        assert time.complete(5_000, "1000-0", 0, None, True) == 5_000
        assert time.move_on(9_000) == 0
    stack.admin.delete(*PairKeys("older-0").all())
    stack.admin.execute_command("ACL", "DELUSER", "older")
