"""What Prometheus scrapes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..errors import responses
from ..metrics.registry import CONTENT_TYPE
from ..services import UseServices

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics in Prometheus' text format 0.0.4",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **responses(),
    },
)
async def metrics(services: UseServices) -> Response:
    """The api's own metrics, and the fleet's as the store shows it.

    The fleet is read at most every five seconds. While the store is away the last reading is shown for a minute; the
    answer never waits for it longer than a second.
    """
    return Response(await services.metrics.scrape(), media_type=CONTENT_TYPE)
