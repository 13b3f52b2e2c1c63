"""What the routes share that change something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from accord.learner.changes import Change, ChangeRefusedError, OverrideUnknownError, Standing
from accord.learner.effects import Effects
from accord.learner.errors import InvalidValue

from ..errors import (
    ApiError,
    ConflictError,
    NoOverrideError,
    PreconditionRequiredError,
    ValueInvalidError,
    responses,
)
from ..etag import IfMatch
from ..services import Services
from ..writer import revision_tag

ETAG: dict[str, Any] = {
    "ETag": {"description": "The revision of the pair's overrides", "schema": {"type": "string"}},
}

READING = {200: {"headers": ETAG}, **responses(404, 503)}
CHANGING = {200: {"headers": ETAG}, **responses(404, 409, 412, 428, 503)}


async def _if_match(
    request: Request,
    if_match: Annotated[
        str | None,
        Header(description='The ETag of what is changed, such as `"7"`, or `*`', examples=['"7"']),
    ] = None,
) -> IfMatch:
    lines = request.headers.getlist("if-match")
    if not lines:
        raise PreconditionRequiredError("send If-Match with the ETag of the pair's overrides, or *", field="If-Match")
    try:
        return IfMatch.parse(lines)
    except ValueError as error:
        raise ValueInvalidError(str(error), field="If-Match", value=if_match) from None


UseIfMatch = Annotated[IfMatch, Depends(_if_match)]


def refused(error: Exception) -> ApiError:
    """The answer to a change that could not be worked out."""
    if isinstance(error, OverrideUnknownError):
        return NoOverrideError(str(error))
    if isinstance(error, ChangeRefusedError):
        return ConflictError(str(error))
    assert isinstance(error, InvalidValue)
    return ValueInvalidError(str(error), field=error.field)


REFUSALS = (OverrideUnknownError, ChangeRefusedError, InvalidValue)


async def changed(
    services: Services, pair: str, expected: IfMatch, plan: Callable[[Standing], Change], response: Response
) -> tuple[Change, Effects]:
    """Applies a change, tells who waits for the pair, and names the new revision in the answer.

    Raises:
        ApiError: for a change that cannot be made; nothing was changed then.
    """
    try:
        change, found = await services.writer.change(pair, expected, plan)
    except REFUSALS as error:
        raise refused(error) from None
    services.tables.changed(pair, change.table.version)
    response.headers["ETag"] = revision_tag(change.revision)
    return change, found
