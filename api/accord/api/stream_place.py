"""Places in a stream of the store, and moments, as queries name them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query

from accord.learner.bounds import EXACT
from accord.learner.errors import InvalidValue
from accord.learner.store.records import stream_id

from .errors import ValueInvalidError

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


async def _before(
    before: Annotated[
        str | None,
        Query(max_length=41, description="The `next` of the page before", examples=["1700000000000-0"]),
    ] = None,
) -> str | None:
    if before is None:
        return None
    try:
        stream_id("before", before)
    except InvalidValue as error:
        raise ValueInvalidError(error.why, field="before", value=before) from None
    return before


Before = Annotated[str | None, Depends(_before)]


def moment_ms(field: str, text: str) -> int:
    """Unix milliseconds of a moment given as such, or as RFC 3339.

    Raises:
        ValueInvalidError: for anything else.

    >>> moment_ms("as_of", "1970-01-01T00:00:01.5Z"), moment_ms("as_of", "1500")
    (1500, 1500)
    """
    if text.isascii() and text.isdigit() and len(text) <= 16 and int(text) < EXACT:
        return int(text)
    # An unescaped + of a query arrives as a blank.
    text = re.sub(r" (\d\d:\d\d)$", r"+\1", text)
    if _RFC_3339.fullmatch(text):
        try:
            at = datetime.fromisoformat(text.upper().replace(" ", "T", 1)).timestamp()
        except (ValueError, OverflowError):
            at = -1.0
        if at >= 0.0:
            return int(at * 1000.0 + 0.5)
    raise ValueInvalidError("must be unix milliseconds, or RFC 3339 with a zone", field=field, value=text)
