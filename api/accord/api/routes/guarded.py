"""What the routes share that change something."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Request

from accord.learner.changes import ChangeRefusedError, OverrideUnknownError
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
