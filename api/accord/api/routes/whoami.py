"""Who the server takes the caller for."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ..auth import CurrentPrincipal
from ..errors import responses

router = APIRouter(prefix="/v1", tags=["session"])


class Caller(BaseModel):
    """Whose token this is, and what it may do."""

    name: str | None
    role: Literal["engine", "viewer", "operator"]


@router.get("/whoami", responses=responses())
async def whoami(principal: CurrentPrincipal) -> Caller:
    """The name and the role behind the token; without tokens everybody is a nameless operator."""
    return Caller.model_validate({"name": principal.name, "role": principal.role.value})
