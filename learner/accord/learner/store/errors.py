"""What can go wrong between accord and Redis, and the one place where the client's exceptions are translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import RedisClusterException

from ..errors import AccordError

_PASSING = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)


class StoreError(AccordError):
    """Redis refused a command; trying again does not help."""


class StoreUnavailableError(StoreError):
    """Redis cannot be reached or cannot serve now; trying again later may help.

    A write that ends like this may have been applied.
    """


class StoreCorruptError(StoreError):
    """A stored value is not what accord writes."""


class FenceLostError(StoreError):
    """The lease is not ours any more: stop working on the pair; nothing was written."""


class WatermarkMovedError(StoreError):
    """Somebody committed since the state was loaded: load it again; nothing was written."""


class VersionError(StoreError):
    """A publication does not grow past the version in force; nothing was written."""


class OverridesMovedError(StoreError):
    """An operator changed something since the overrides were read: read them again; nothing was written."""


@contextmanager
def translated() -> Iterator[None]:
    """Turns the client's exceptions into StoreUnavailableError or StoreError; also a decorator."""
    try:
        yield
    except (redis.RedisError, RedisClusterException) as error:
        kind = StoreUnavailableError if unavailable(error) else StoreError
        raise kind(f"{type(error).__name__}: {error}") from error


def unavailable(error: BaseException) -> bool:
    """True when the error says that Redis is out of reach or cannot serve now, and trying again may help.

    >>> unavailable(redis.ConnectionError("refused")), unavailable(redis.ResponseError("WRONGTYPE"))
    (True, False)
    """
    if isinstance(error, StoreUnavailableError | redis.ConnectionError | redis.TimeoutError):
        return True
    # The client strips the code of some replies and keeps it only in the type.
    if isinstance(
        error,
        redis.ReadOnlyError
        | redis.OutOfMemoryError
        | redis.exceptions.ClusterError
        | redis.exceptions.TryAgainError
        | RedisClusterException,
    ):
        return True
    return isinstance(error, redis.ResponseError) and str(error).lstrip("-").startswith(_PASSING)
