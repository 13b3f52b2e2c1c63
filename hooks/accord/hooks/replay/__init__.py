"""A stand-in engine that replays recorded traces through the real engine side."""

from __future__ import annotations

from .player import Mix, ReplayEngine

__all__ = ["Mix", "ReplayEngine"]
