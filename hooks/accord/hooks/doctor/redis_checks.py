"""Redis, with the engine's own credentials: nothing is written, and no right beyond an engine's is needed.

A server checks rights, memory and role of a command before it looks at its arguments. So a command with impossible
arguments tells whether a good one would be taken, and leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from accord.learner.errors import AccordError
from accord.learner.store import PAIRS, PairKeys, Store, connect, safe_url, scripts, unavailable
from accord.learner.store.store import MAX_ENTRIES

from .environment import is_local
from .facts import Facts
from .report import Check, fail, ok, skip, warn

_ERRORS = (redis.RedisError, RedisClusterException, AccordError, OSError)

GRANT = f"an engine needs +evalsha +script|load +time +hsetnx +hget on {PAIRS}"


def check_redis(facts: Facts, seconds: float) -> Iterator[Check]:
    """Reachable, fit for its purpose, and open for what an engine does, and no more."""
    settings = facts.settings
    if settings is None or settings.redis_url is None:
        yield skip("redis.reach", "ACCORD_REDIS_URL is not set: evidence stays in the engine")
        return
    url = settings.redis_url
    facts.redis_works = False
    retry = Retry(NoBackoff(), 0)
    try:
        client = connect(
            url, role="doctor", socket_timeout=seconds, socket_connect_timeout=min(seconds, 2.0), retry=retry
        )
    except _ERRORS as error:
        yield _unreachable(url, error)
        return
    with Store(client) as store:
        reached, works = _reach(facts, client, url)
        yield reached
        if not works:
            return
        yield from _server(client)
        if facts.pair is None:
            yield skip("redis.append", "rights depend on the pair, which is not known")
            return
        checks = [*_writes(client, PairKeys(facts.pair.id), settings.engine), *_register(facts, store)]
        facts.redis_works = all(check.status != "fail" for check in checks)
        yield from checks
        yield _privileges(client, PairKeys(facts.pair.id), is_local(url))


def _reach(facts: Facts, client: Any, url: str) -> tuple[Check, bool]:
    began, before = time.time(), time.perf_counter()
    try:
        # What an engine's first command is, too.
        now_ms = int(client.register_script(scripts.CLOCK)(keys=[PAIRS]))
    except redis.exceptions.NoPermissionError as error:
        return fail("redis.reach", f"reached, but no right to run scripts on {PAIRS}: {error}", GRANT), False
    except _ERRORS as error:
        return _unreachable(url, error), False
    took = time.perf_counter() - before
    facts.skews_s["Redis"] = (now_ms / 1e3 - (began + 0.5 * took), 0.5 * took)
    return ok("redis.reach", f"{safe_url(url)} answers in {took * 1e3:.1f} ms"), True


def _unreachable(url: str, error: BaseException) -> Check:
    text = f"{safe_url(url)}: {error or type(error).__name__}"
    # Some servers say NOAUTH or WRONGPASS, and the client has a type for each, or keeps the text.
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in str(error) or "WRONGPASS" in str(error):
        return fail("redis.reach", text, "correct user and password in ACCORD_REDIS_URL; special characters as %XX")
    if "CERTIFICATE" in str(error).upper() or "SSL" in str(error):
        return fail("redis.reach", text, "name the authority with ?ssl_ca_certs=FILE in ACCORD_REDIS_URL")
    return fail("redis.reach", text, "check host and port, that Redis runs, and what the network lets through")


def _server(client: Any) -> Iterator[Check]:
    try:
        info = client.info()
    except redis.exceptions.NoPermissionError:
        yield skip("redis.server", "not checked: these credentials may not run INFO, which is right for an engine")
        return
    except _ERRORS as error:
        yield skip("redis.server", f"not checked: INFO fails: {error}")
        return
    # On a Cluster one answer for each node.
    nodes = list(info.values()) if info and all(isinstance(value, dict) for value in info.values()) else [info]
    version = str(nodes[0].get("redis_version", "?"))
    if version[:1].isdigit() and int(version.partition(".")[0]) < 7:
        yield fail("redis.server", f"version {version}", "accord needs Redis 7 or newer, or Valkey")
        return
    policies = sorted({str(node.get("maxmemory_policy", "?")) for node in nodes} - {"noeviction", "?"})
    if policies:
        advice = "CONFIG SET maxmemory-policy noeviction: an evicted state is lost knowledge"
        yield warn("redis.server", f"version {version}, maxmemory-policy {policies[0]}", advice)
    if not all(node.get("aof_enabled", 1) for node in nodes):
        yield warn("redis.server", f"version {version} without AOF", "set appendonly yes: a restart forgets otherwise")
    elif not policies:
        yield ok("redis.server", f"version {version}, AOF on, nothing is evicted")


def _writes(client: Any, keys: PairKeys, engine: str) -> Iterator[Check]:
    yield _harmless(
        "redis.append",
        "may append to the rounds of its pair",
        # No entry can have the id 0-0.
        lambda: client.execute_command("XADD", keys.rounds, "MAXLEN", "~", MAX_ENTRIES, "0-0", "d", ""),
        "must be greater than 0-0",
        f"+xadd ~{keys.rounds}",
    )
    yield _harmless(
        "redis.heartbeat",
        "may say how it is",
        # A field without a value.
        lambda: client.execute_command("HSET", keys.engines, engine, "", "odd"),
        "wrong number of arguments",
        f"+hset ~{keys.engines}",
    )


def _harmless(name: str, good: str, command: Callable[[], object], complaint: str, right: str) -> Check:
    try:
        command()
    except redis.exceptions.NoPermissionError as error:
        return fail(name, str(error), f"grant the user of ACCORD_REDIS_URL ({right})")
    except _ERRORS as error:
        if complaint in str(error):
            return ok(name, good)
        if unavailable(error):
            return fail(
                name, f"{type(error).__name__}: {error}", "Redis takes no writes now: memory, disk, or a replica?"
            )
        return warn(name, f"cannot be told: {error}", "is this Redis, or something between?")
    return warn(name, "cannot be told: the server took an impossible command", "is this Redis, or something between?")


def _register(facts: Facts, store: Store) -> Iterator[Check]:
    assert facts.pair is not None
    try:
        record = store.record(facts.pair.id)
    except _ERRORS as error:
        denied = isinstance(error.__cause__, redis.exceptions.NoPermissionError)
        yield fail("redis.register", str(error), GRANT if denied else "is the register of pairs damaged?")
        return
    facts.registered, facts.knots = record is not None, None if record is None else record.knots
    may = _rights(store.client, "HSETNX", PAIRS)
    if may is None:
        yield skip(
            "redis.register", f"may read {PAIRS}; whether it may register a pair cannot be checked on this server"
        )
    elif not may[0]:
        yield fail("redis.register", f"no right to register a pair in {PAIRS}", GRANT)
    else:
        yield ok("redis.register", f"may register its pair in {PAIRS}")


def _privileges(client: Any, keys: PairKeys, local: bool) -> Check:
    name = "redis.privileges"
    forbidden = ("HSET", keys.coefficients, "HSET", keys.state, "XADD", keys.history, "HSET", keys.lease)
    may = _rights(client, *forbidden)
    if may is None:
        return skip(name, "cannot be checked on this server: it has no redis.acl_check_cmd")
    parts = [key.rpartition(":")[2] for key, allowed in zip(forbidden[1::2], may, strict=True) if allowed]
    if not parts:
        return ok(name, "no more rights than an engine needs, as far as the pair's other keys tell")
    told = f"these credentials may also write {', '.join(parts)}"
    if local:
        return ok(name, f"{told}; fine on one machine")
    return warn(name, told, "give engines a user of their own: whoever owns an engine could forge coefficients")


def _rights(client: Any, *pairs: str) -> list[int] | None:
    try:
        return [int(value) for value in client.register_script(scripts.RIGHTS)(keys=[PAIRS], args=list(pairs))]
    except _ERRORS:
        return None
