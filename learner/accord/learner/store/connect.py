"""Clients for every way to reach Redis: one server, a socket, Sentinel, Cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import FullJitterBackoff
from redis.retry import Retry

from ..errors import InvalidValue
from .errors import translated
from .sentinel import WatchedAsyncConnection, WatchedAsyncTlsConnection, WatchedConnection, WatchedTlsConnection

SOCKET_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0
RETRIES = 2

_SCHEMES = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_PORTS = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
_OPTIONS = {
    "socket_timeout": float,
    "socket_connect_timeout": float,
    "health_check_interval": int,
    "max_connections": int,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": str,
}
_ROLE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

# Classes that the client ships without types.
_cluster_node: Any = redis.cluster.ClusterNode
_sentinel: Any = redis.sentinel.Sentinel
_async_sentinel: Any = redis.asyncio.sentinel.Sentinel


Client = redis.Redis | redis.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.cluster.RedisCluster


class _SentinelClient(redis.asyncio.Redis):
    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        pool: Any = self.connection_pool
        await super().aclose(close_connection_pool)
        # Nobody else can: the connections to the Sentinels hang on this client only.
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


@dataclass(frozen=True)
class _Address:
    kind: str
    nodes: list[tuple[str, int]]
    path: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]


def connect(url: str, *, role: str = "client", **options: Any) -> Client:
    """A client whose replies are bytes and whose waits are finite. Only a Cluster client connects at once.

    Args:
        url: `redis://[[user]:password@]host:port/db`, `rediss://...`, `unix:///path?db=0`,
            `redis+sentinel://host:port,host:port/service?db=0`, `redis+cluster://host:port,host:port`. A query may set
            socket_timeout and socket_connect_timeout (seconds), health_check_interval, max_connections, ssl_*, and
            with Sentinel sentinel_username and sentinel_password.
        role: the connections are named `accord-<role>`.
        options: for the client; they win over the URL.

    Raises:
        InvalidValue: for a URL that cannot be used; a password in it is not shown.
        StoreUnavailableError: when no node of a Cluster answers.
    """
    address = _parse(url)
    values = _defaults(role) | {"retry": Retry(FullJitterBackoff(cap=0.5, base=0.05), RETRIES)}
    values |= address.options | options
    if address.kind == "cluster":
        with translated():
            return redis.RedisCluster(startup_nodes=[_cluster_node(*node) for node in address.nodes], **values)
    # Older clients repeat only what is named here.
    values.setdefault("retry_on_error", [redis.ConnectionError, redis.TimeoutError])
    if address.kind == "sentinel":
        sentinel_kwargs = _timeouts(values) | address.sentinel_options
        watched = WatchedTlsConnection if values.get("ssl") else WatchedConnection
        sentinel = _sentinel(address.nodes, sentinel_kwargs=sentinel_kwargs, **values)
        client: Client = sentinel.master_for(address.path, connection_class=watched)
        return client
    if address.kind == "unix":
        return redis.Redis(unix_socket_path=address.path, **values)
    host, port = address.nodes[0]
    return redis.Redis(host=host, port=port, **values)


def connect_async(url: str, *, role: str = "client", **options: Any) -> AsyncClient:
    """The asyncio twin of `connect`; connects on first use.

    Raises:
        InvalidValue: for a URL that cannot be used; a password in it is not shown.
    """
    address = _parse(url)
    values = _defaults(role) | {
        "retry": redis.asyncio.retry.Retry(FullJitterBackoff(cap=0.5, base=0.05), RETRIES),
    }
    values |= address.options | options
    if address.kind == "cluster":
        nodes = [redis.asyncio.cluster.ClusterNode(*node) for node in address.nodes]
        return redis.asyncio.cluster.RedisCluster(startup_nodes=nodes, **values)
    # Older clients repeat only what is named here.
    values.setdefault("retry_on_error", [redis.ConnectionError, redis.TimeoutError])
    if address.kind == "sentinel":
        sentinel_kwargs = _timeouts(values) | address.sentinel_options
        sentinel = _async_sentinel(address.nodes, sentinel_kwargs=sentinel_kwargs, **values)
        watched = WatchedAsyncTlsConnection if values.get("ssl") else WatchedAsyncConnection
        client: AsyncClient = sentinel.master_for(address.path, redis_class=_SentinelClient, connection_class=watched)
        return client
    if address.kind == "unix":
        return redis.asyncio.Redis(unix_socket_path=address.path, **values)
    host, port = address.nodes[0]
    return redis.asyncio.Redis(host=host, port=port, **values)


def safe_url(url: object) -> str:
    """The URL without user, password and secret parameters: fit for a log.

    >>> safe_url("redis://user:secret@host:6379/0?sentinel_password=x&db=1")
    'redis://***@host:6379/0?sentinel_password=***&db=1'
    """
    # Greedy up to the last @: a password that was not percent-encoded may hold any character.
    hidden = re.sub(r"^([a-z+]*://)?.*@", r"\1***@", str(url), flags=re.IGNORECASE | re.DOTALL)
    return re.sub(r"((?:password|username|secret|token)[^=&]*=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)


def _defaults(role: str) -> dict[str, Any]:
    if not _ROLE.fullmatch(role):
        raise InvalidValue("role", role, "must match [a-z0-9][a-z0-9-]{0,31}")
    return {
        # The older protocol gives the same shape of replies with every version of the client.
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "client_name": f"accord-{role}",
    }


def _timeouts(values: dict[str, Any]) -> dict[str, Any]:
    # No retries: the next Sentinel is asked instead.
    kept = {"socket_timeout", "socket_connect_timeout", "protocol", "client_name"}
    return {key: value for key, value in values.items() if key in kept} | {"retry": None}


def _parse(url: str) -> _Address:
    if not isinstance(url, str) or "://" not in url:
        raise InvalidValue("url", safe_url(url), f"must start with one of {', '.join(f'{s}://' for s in _SCHEMES)}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue("url", safe_url(url), "is not a URL") from None
    if parts.scheme not in _SCHEMES:
        raise InvalidValue("url", safe_url(url), f"must start with one of {', '.join(f'{s}://' for s in _SCHEMES)}")
    kind, tls = _SCHEMES[parts.scheme]
    credentials, _, hosts = parts.netloc.rpartition("@")
    query, sentinel_options = _query(url, parts)
    user, _, password = credentials.partition(":")
    if credentials:
        query |= {"username": unquote(user) or None, "password": unquote(password) or None}
    if tls:
        query["ssl"] = True
    path = unquote(parts.path)
    db: object = query.pop("db", None)
    if kind == "unix":
        if not path or hosts:
            raise InvalidValue("url", safe_url(url), "must name a socket: unix:///path")
        return _Address(kind, [], path, query | {"db": _db(url, db)}, {})
    nodes = [_node(url, text, _PORTS[kind]) for text in hosts.split(",")]
    if kind == "standalone" and len(nodes) > 1:
        raise InvalidValue("url", safe_url(url), "one host only; several need redis+sentinel:// or redis+cluster://")
    path = path.strip("/")
    if kind == "sentinel":
        if not path or "/" in path:
            raise InvalidValue("url", safe_url(url), "must name the service: redis+sentinel://host:port/service")
        return _Address(kind, nodes, path, query | {"db": _db(url, db)}, sentinel_options)
    number = _db(url, db if db is not None else path or None)
    if kind == "cluster":
        if number:
            raise InvalidValue("url", safe_url(url), "a Cluster has database 0 only")
        return _Address(kind, nodes, "", query, {})
    return _Address(kind, nodes, "", query | {"db": number}, {})


def _query(url: str, parts: SplitResult) -> tuple[dict[str, Any], dict[str, Any]]:
    options: dict[str, Any] = {}
    sentinel: dict[str, Any] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key == "db":
            options[key] = value
        elif key in ("sentinel_username", "sentinel_password"):
            sentinel[key.removeprefix("sentinel_")] = value
        elif key in _OPTIONS:
            try:
                options[key] = _OPTIONS[key](value)
            except ValueError:
                raise InvalidValue(key, value, "must be a number, in a Redis URL") from None
            if key.endswith("timeout") and not 0 < options[key] <= 600:
                raise InvalidValue(key, value, "must be more than 0 and at most 600 seconds")
        else:
            known = ", ".join(sorted([*_OPTIONS, "db", "sentinel_username", "sentinel_password"]))
            raise InvalidValue("url", safe_url(url), f"parameter {key!r} is not one of {known}")
    return options, sentinel


def _node(url: str, text: str, default: int) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/@\s]+))(?::(?P<port>[0-9]{1,5}))?", text)
    port = int(match["port"] or default) if match else 0
    if not match or not 1 <= port <= 65535:
        raise InvalidValue(
            "url", safe_url(url), "every node must be host:port; special characters of a password as %XX"
        )
    return match["six"] or match["host"], port


def _db(url: str, text: object) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,5}", str(text)):
        raise InvalidValue("url", safe_url(url), "the database must be a whole number")
    return int(str(text))
