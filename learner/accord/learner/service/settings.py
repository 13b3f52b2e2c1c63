"""How a learner process is set up."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InvalidValue
from ..store import Retention
from ..store.operators import MOST_HISTORY

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"
BOUNDS = {
    "lease_ms": (300, 600_000),
    "read_count": (1, 100_000),
    "metrics_port": (0, 65_535),
    "metrics_max_pairs": (0, 100_000),
    "history_count": (1, MOST_HISTORY),
    "history_age_s": (60, 315_360_000),
}


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
        carry: whether a new pair may start from the prior of the nearest known one.
        metrics_port: where metrics are served, 0 for any free port; None serves none.
        metrics_host: the address there.
        metrics_max_pairs: pairs with series of their own; what others count is summed up as one.
        history_count, history_age_s: most publications of a pair that are kept, and their greatest age in seconds.
    """

    redis_url: str = DEFAULT_REDIS_URL
    learner_id: str = field(default_factory=_learner_id)
    lease_ms: int = 3_000
    read_count: int = 1_000
    carry: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_max_pairs: int = 200
    history_count: int = 10_000
    history_age_s: int = 90 * 86_400

    def __post_init__(self) -> None:
        for name in BOUNDS:
            if name != "metrics_port" or self.metrics_port is not None:
                _check(name, name, getattr(self, name))

    @property
    def retention(self) -> Retention:
        """How much history a commit keeps."""
        return Retention(self.history_count, self.history_age_s * 1000)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LearnerSettings:
        """Reads ACCORD_REDIS_URL and ACCORD_LEARNER_LEASE_MS, _READ_COUNT, _CARRY (0 or 1), _METRICS_PORT,
        _METRICS_HOST, _METRICS_MAX_PAIRS, _HISTORY_COUNT and _HISTORY_AGE_S; empty is unset.

        Raises:
            InvalidValue: naming the variable and its value.
        """
        return cls(
            redis_url=environment.get("ACCORD_REDIS_URL") or DEFAULT_REDIS_URL,
            lease_ms=_whole(environment, "lease_ms", cls.lease_ms),
            read_count=_whole(environment, "read_count", cls.read_count),
            carry=_flag(environment, "carry"),
            metrics_port=(
                _whole(environment, "metrics_port", 0) if environment.get("ACCORD_LEARNER_METRICS_PORT") else None
            ),
            metrics_host=environment.get("ACCORD_LEARNER_METRICS_HOST") or cls.metrics_host,
            metrics_max_pairs=_whole(environment, "metrics_max_pairs", cls.metrics_max_pairs),
            history_count=_whole(environment, "history_count", cls.history_count),
            history_age_s=_whole(environment, "history_age_s", cls.history_age_s),
        )


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    variable = f"ACCORD_LEARNER_{name.upper()}"
    text = environment.get(variable) or str(default)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidValue(variable, text, "must be a whole number")
    return _check(variable, name, int(text))


def _check(shown: str, name: str, value: object) -> int:
    low, high = BOUNDS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidValue(shown, value, f"must be a whole number from {low} to {high}")
    return value


def _flag(environment: Mapping[str, str], name: str) -> bool:
    variable = f"ACCORD_LEARNER_{name.upper()}"
    text = environment.get(variable) or "0"
    if text not in ("0", "1"):
        raise InvalidValue(variable, text, "must be 0 or 1")
    return text == "1"
