"""The cost tables that engines report with their heartbeat: which can be used, and which not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accord.learner.costs import EngineCosts
from accord.learner.errors import InvalidValue

from .engine_status import whole


@dataclass(frozen=True)
class Reported:
    """One engine's tables; `seen_ms` is when it last reported, unix milliseconds, None when it does not say."""

    engine: str
    costs: EngineCosts
    seen_ms: int | None


def reported(engines: Mapping[str, Mapping[str, Any]]) -> tuple[list[Reported], dict[str, str]]:
    """Tables that can be used, by engine name, and for every engine whose tables cannot be why not.

    Args:
        engines: engine -> status as the engine wrote it. One that reports no tables is in neither answer.
    """
    usable: list[Reported] = []
    refused: dict[str, str] = {}
    for name, status in sorted(engines.items()):
        tables = status.get("costs")
        if tables is None:
            continue
        try:
            usable.append(Reported(name, EngineCosts.of(tables), whole(status.get("time_ms"))))
        except InvalidValue as error:
            # The value is an engine's own text: JSON can name half a character, which no answer could hold.
            refused[name] = str(error).encode("utf-8", "backslashreplace").decode()
    return usable, refused


def freshest(usable: list[Reported]) -> Reported | None:
    """The tables of the engine that reported last; None without any."""
    return max(usable, key=lambda found: (found.seen_ms or 0, found.engine), default=None)
