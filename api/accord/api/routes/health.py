"""Whether the process lives, and whether it can do its work."""

from __future__ import annotations

from fastapi import APIRouter

from ..errors import NotReadyError, responses
from ..models import Health
from ..services import UseServices

router = APIRouter(tags=["health"])


@router.get("/livez", responses=responses())
async def livez() -> Health:
    """The process answers. Says nothing about the store: restarting the api does not repair it."""
    return Health(status="alive")


@router.get("/readyz", responses=responses(503))
async def readyz(services: UseServices) -> Health:
    """The store answers and announces its changes."""
    if not services.subscriber.alive:
        raise NotReadyError("the store's announcements do not arrive")
    await services.source.ping()
    return Health(status="ready")
