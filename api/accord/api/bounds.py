"""Bounds that routes and commands must agree on."""

from __future__ import annotations

MAX_PAGE = 1000
"""Entries that one page of any list may be asked for."""
