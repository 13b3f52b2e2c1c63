"""Who sends a request, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from accord.learner.changes import Author

from .errors import ValueInvalidError


@dataclass(frozen=True)
class Sender:
    """The name of the request's token, None without one, and its role."""

    token: str | None
    role: str


def sender(request: Request) -> Sender:
    """Whoever was authenticated; without tokens everybody is an operator without a name."""
    principal = getattr(request.state, "principal", None)
    role = getattr(principal, "role", None)
    return Sender(getattr(principal, "name", None), "operator" if role is None else str(role))


def author(request: Request, actor: str | None, reason: str) -> Author:
    """Who signs a change: the actor that the request names, or else its token.

    Raises:
        ValueInvalidError: when there is neither.
    """
    who = sender(request)
    if actor is None and who.token is None:
        raise ValueInvalidError("is required: the request has no token whose name could stand for it", field="actor")
    return Author(actor or who.token or "", reason, who.token, who.role)
