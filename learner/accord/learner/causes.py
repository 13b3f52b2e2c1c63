"""Why a version was published: the words of the history, its filter and its metrics."""

from __future__ import annotations

from typing import Literal, get_args

Cause = Literal["refit", "drift", "returned", "carried", "override", "lifted", "expired", "rollback", "restored"]
CAUSES: tuple[str, ...] = get_args(Cause)
