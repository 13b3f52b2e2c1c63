"""What the parts of the store share: a client, and scripts that load themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from .connect import Client
from .errors import StoreCorruptError

Argument = str | bytes | int


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

    def _run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(script)
        return self._scripts[script](keys=keys, args=args)


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
