"""Boots as answers show them: the first half of their digits.

A boot is 64 random bits that only its engine and the learner know. Whoever knew it could send rounds in that engine's
name, and the engine's own next rounds would be refused as duplicates. Half of it tells two boots apart as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 8


def shown(boot: object) -> object:
    """The first half of a boot, and anything else as it is.

    >>> shown("0123456789abcdef"), shown(None)
    ('01234567', None)
    """
    return boot[:SHOWN] if isinstance(boot, str) else boot


def of_lineage(lineage: object) -> object:
    """Engine -> [boot, first round, last round], the boots shortened; anything else as it is."""
    if not isinstance(lineage, Mapping):
        return lineage
    return {
        engine: [shown(rounds[0]), *rounds[1:]] if isinstance(rounds, list) and rounds else rounds
        for engine, rounds in lineage.items()
    }


def of(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A mapping with the boots under these names shortened.

    >>> of({"boot": "0123456789abcdef", "state": "fleet"}, "boot")
    {'boot': '01234567', 'state': 'fleet'}
    """
    return {name: shown(value) if name in names else value for name, value in values.items()}
