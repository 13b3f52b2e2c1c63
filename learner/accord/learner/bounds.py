"""Bounds that several parts must agree on."""

from __future__ import annotations

from typing import Any

from .errors import InvalidValue

EXACT = 1 << 53
"""Whole numbers below are the same in Lua, in JavaScript and in JSON everywhere."""

MAX_TOKEN_BYTES = 4096
"""The longest bearer token that engines and commands send, and that the api reads."""


def whole(field: str, value: Any, least: int = 0) -> int:
    """A whole number from `least` to 2^53 - 1, or InvalidValue.

    >>> whole("version", 7)
    7
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < EXACT:
        raise InvalidValue(field, value, f"must be a whole number from {least} to 2^53 - 1")
    return value
