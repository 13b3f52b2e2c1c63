"""The published coefficients: what engines poll."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.types import Receive

from accord.learner.bounds import EXACT

from ..errors import ValueInvalidError, responses
from ..etag import IfNoneMatch
from ..models import CoefficientTableView
from ..services import PairId, Services, UseServices
from ..settings import MAX_WAIT_S
from ..stream_place import moment_ms
from ..tables import Table
from ..waiters import Ended

router = APIRouter(prefix="/v1", tags=["coefficients"])

_HEADERS: dict[str, Any] = {
    "ETag": {"description": "Strong tag of exactly these bytes", "schema": {"type": "string"}},
    "Vary": {"schema": {"type": "string"}},
    "Cache-Control": {"schema": {"type": "string"}},
    "Accord-Version": {"description": "The version of the table", "schema": {"type": "integer"}},
    "Accord-Stale": {
        "description": "`true` while the store is out of reach: this is the last table that was read",
        "schema": {"type": "string", "enum": ["true"]},
    },
}


LAST_WORDS = (Ended.STOPPED, Ended.DISCONNECTED)
"""A server that stops, or a client that has gone, must not wait for another read of the store."""


@router.get(
    "/pairs/{pair}/coefficients",
    response_model=CoefficientTableView,
    responses={
        200: {"headers": _HEADERS, "description": "The table in force, byte for byte as published"},
        304: {"headers": _HEADERS, "description": "The client holds the table in force"},
        **responses(404, 503),
    },
)
async def coefficients(
    pair: PairId,
    request: Request,
    services: UseServices,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=MAX_WAIT_S,
            allow_inf_nan=False,
            description="Seconds to hold the answer while the table is the one that `If-None-Match` names",
        ),
    ] = 0.0,
    version: Annotated[
        int | None, Query(ge=0, lt=EXACT, description="A past version; answered at once, whatever `wait` says")
    ] = None,
    as_of: Annotated[
        str | None,
        Query(max_length=40, description="A moment, unix milliseconds or RFC 3339: the version in force then"),
    ] = None,
) -> Response:
    """All workloads of a pair and the prior row.

    Send back the ETag in `If-None-Match`, and `wait` to be told of the next version as soon as it is published. A pair
    without a publication answers version 0, the cold start.
    """
    held = IfNoneMatch.parse(request.headers.getlist("if-none-match"))
    if version is not None and as_of is not None:
        raise ValueInvalidError("one of version and as_of, not both", field="as_of", value=as_of)
    if version is not None:
        return answer(await services.trail.version(pair, version), False, held)
    if as_of is not None:
        return answer(await services.trail.as_of(pair, moment_ms("as_of", as_of)), False, held)
    table, stale = await services.tables.get(pair)
    if wait > 0 and held.matches(table.etag):
        ended = await hold(services, pair, request.receive, held, wait)
        if ended not in LAST_WORDS:
            table, stale = await services.tables.get(pair)
    return answer(table, stale, held)


async def hold(services: Services, pair: str, receive: Receive, held: IfNoneMatch, wait: float) -> Ended:
    """Waits until the table is another one than the client holds, or the time is over."""

    def changed() -> bool:
        table = services.tables.peek(pair)
        return table is None or not held.matches(table.etag)

    return await services.waiters.hold(pair, min(wait, services.settings.max_wait_s), receive, changed)


def answer(table: Table, stale: bool, held: IfNoneMatch) -> Response:
    """The table, or 304 for a client that holds it. No cache keeps one unasked, not even of a past version: a restored
    backup may give its number to another table."""
    headers = {
        "ETag": table.etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
        "Accord-Version": str(table.version),
    }
    if stale:
        headers["Accord-Stale"] = "true"
    if held.matches(table.etag):
        return Response(status_code=304, headers=headers)
    return Response(table.body, media_type="application/json", headers=headers)
