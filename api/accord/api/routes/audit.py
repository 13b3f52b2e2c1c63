"""Who changed what, when and why. There is no route that alters it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError

from accord.learner.store.errors import StoreCorruptError

from ..bounds import MAX_PAGE
from ..errors import PairUnknownError, responses
from ..models import AuditItem, AuditPage
from ..services import PairId, UseServices
from ..stream_place import Before

router = APIRouter(prefix="/v1", tags=["audit"])


@router.get("/pairs/{pair}/audit", responses=responses(404, 503))
async def audit(
    pair: PairId,
    services: UseServices,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Entries a page")] = 50,
    before: Before = None,
) -> AuditPage:
    """Every change of an operator and every override that ended by itself, newest first."""
    if await services.source.record(pair) is None:
        raise PairUnknownError(pair)
    found, following = await services.trail.audit(pair, limit, before)
    try:
        entries = [AuditItem.model_validate({**item.values, "id": item.id, "at_ms": item.at_ms}) for item in found]
    except ValidationError as error:
        raise StoreCorruptError(f"audit of {pair}: {error.error_count()} values are not understood") from None
    return AuditPage(entries=entries, next=following)
