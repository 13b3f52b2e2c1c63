"""The roles, each of which may do what those before it may."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a caller may do at most, or what a route asks for at least.

    >>> Role.OPERATOR.covers(Role.VIEWER), Role.ENGINE.covers(Role.VIEWER), Role.ENGINE.covers(Role.OPEN)
    (True, False, True)
    """

    OPEN = "open"
    """Nobody needs a token: health, and files without data. No token has this role."""
    ENGINE = "engine"
    """Reads coefficients."""
    VIEWER = "viewer"
    """Reads everything."""
    OPERATOR = "operator"
    """Changes what engines are served."""

    def covers(self, least: Role) -> bool:
        """Whether this role suffices where `least` is asked for."""
        return self._rank >= least._rank

    def __init__(self, _: str) -> None:
        # The order in which they stand. A dictionary would ask Python for the hash of a member twice a request.
        self._rank = len(type(self).__members__)


@dataclass(frozen=True)
class Principal:
    """Who calls.

    Attributes:
        name: of the token, as the file has it; None without a token.
        role: what it may do.
    """

    name: str | None
    role: Role


ANYBODY = Principal(None, Role.OPERATOR)
"""Everybody, where no token file is set: the server then listens on loopback only."""

NOBODY = Principal(None, Role.OPEN)
"""A caller of an open route who showed no usable token."""
