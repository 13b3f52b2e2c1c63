"""The engines of a pair, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..engine_status import FOLLOWING, state_of, whole


def judge_engines(statuses: Iterable[bytes], in_force: int, now_ms: int) -> tuple[dict[str, int], int, int]:
    """Engines by state, the largest version lag among those that follow, and how many of these are behind.

    What engines write is not trusted: a status that is not understood counts as `unknown`.
    """
    states: Counter[str] = Counter()
    lag, behind = 0, 0
    for body in statuses:
        status = _status(body)
        state = state_of(status, now_ms)
        states[state] += 1
        version = whole(status.get("version"))
        if state in FOLLOWING and version is not None and version < in_force:
            lag, behind = max(lag, in_force - version), behind + 1
    return dict(states), lag, behind


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}
