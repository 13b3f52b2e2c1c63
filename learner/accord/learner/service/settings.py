"""How a learner process is set up."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InvalidValue

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"


def _learner_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class LearnerSettings:
    """Settings of one learner process.

    Args:
        redis_url: where the store is.
        learner_id: unique among learners; a new one for every start by default.
        lease_ms: how long a pair stays with a learner that says nothing; renewed three times as often.
        read_count: entries read from one pair in one go.
    """

    redis_url: str = DEFAULT_REDIS_URL
    learner_id: str = field(default_factory=_learner_id)
    lease_ms: int = 3_000
    read_count: int = 1_000

    def __post_init__(self) -> None:
        for name, low, high in (("lease_ms", 300, 600_000), ("read_count", 1, 100_000)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidValue(name, value, f"must be a whole number from {low} to {high}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LearnerSettings:
        """Reads ACCORD_REDIS_URL and ACCORD_LEARNER_LEASE_MS; unset ones keep their default."""
        lease = environment.get("ACCORD_LEARNER_LEASE_MS", str(cls.lease_ms))
        if not lease.isascii() or not lease.isdigit():
            raise InvalidValue("ACCORD_LEARNER_LEASE_MS", lease, "must be a whole number of milliseconds")
        return cls(redis_url=environment.get("ACCORD_REDIS_URL", DEFAULT_REDIS_URL), lease_ms=int(lease[:9]))
