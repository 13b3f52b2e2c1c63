"""What the parts of the store share: a client, and scripts that load themselves."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis

from .connect import Client
from .errors import StoreCorruptError

Argument = str | bytes | int

Command = tuple[str, list[str], list[Argument]]
"""A script, its keys and its arguments."""


class Base:
    """Holds the client. Methods may be called from several threads."""

    def __init__(self, client: Client) -> None:
        # The client's own types promise an awaitable or a value; this one is synchronous.
        self._client: Any = client
        self._scripts: dict[str, Any] = {}

    @property
    def client(self) -> Client:
        """The client, for what the store has no method for."""
        client: Client = self._client
        return client

    @property
    def clustered(self) -> bool:
        """Whether the keys are spread over several nodes."""
        return isinstance(self._client, redis.RedisCluster)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def hang_up(self) -> None:
        """Ends every wait for a reply now, from any thread: the command fails, unless the client repeats it.

        For a shutdown: a server that says nothing would hold it up for as long as the client's timeouts and retries.
        """
        for pool in self._pools():
            for connection in list(getattr(pool, "_in_use_connections", ())):
                found = getattr(connection, "_sock", None)
                # The socket stays the waiting thread's to close: closing it here could close another's.
                if found is not None:
                    with suppress(OSError):
                        found.shutdown(socket.SHUT_RDWR)

    def _pools(self) -> list[Any]:
        if not self.clustered:
            return [self._client.connection_pool]
        clients = [node.redis_connection for node in self._client.get_nodes()]
        return [client.connection_pool for client in clients if client is not None]

    def _run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        return self._script(script)(keys=keys, args=args)

    def _script(self, script: str) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(script)
        return self._scripts[script]


def integer(field: str, value: bytes | None, default: int = 0) -> int:
    """A stored integer, or the default when the field is absent.

    Raises:
        StoreCorruptError: when it is anything else.
    """
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise StoreCorruptError(f"{field} = {value[:60]!r} is not a whole number") from None
