"""What changes, as it changes: server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from accord.learner.errors import InvalidValue
from accord.learner.pair import check_pair_id

from ..errors import ValueInvalidError, responses
from ..event_stream import EventStreamResponse
from ..services import UseServices

router = APIRouter(prefix="/v1", tags=["events"])


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {
            "description": "`event: change` with `{pair, version}` whenever a version is published, and `event: feed` "
            "with `{alive}`: true at the start and whenever anything may have changed, false while the store is away",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **responses(503),
    },
)
async def events(
    services: UseServices,
    pair: Annotated[str | None, Query(description="Only changes of this pair", max_length=128)] = None,
) -> Response:
    """Changes of published coefficients, overrides included.

    A comment comes every ten seconds. A stream ends when the server stops, and after a while by itself: connect again.
    Whoever reads slowly hears of the newest version of each pair only.
    """
    if pair is not None:
        try:
            check_pair_id(pair)
        except InvalidValue as error:
            raise ValueInvalidError(error.why, field="pair", value=pair) from None
    return EventStreamResponse(services.streams, services.streams.open(pair), services.settings.max_stream_s)
