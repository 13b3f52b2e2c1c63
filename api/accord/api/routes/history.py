"""The published versions of a pair, and why each came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError

from accord.learner.causes import Cause

from .. import boots
from ..bounds import MAX_PAGE
from ..errors import PairUnknownError, responses
from ..models import HistoryItem, HistoryPage
from ..services import PairId, UseServices, WorkloadFilter
from ..stream_place import Before
from ..trail import Past

router = APIRouter(prefix="/v1", tags=["history"])


@router.get("/pairs/{pair}/history", responses=responses(404, 503))
async def history(
    pair: PairId,
    services: UseServices,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Entries a page")] = 50,
    before: Before = None,
    workload: WorkloadFilter = None,
    cause: Annotated[Cause | None, Query(description="Only versions with this cause")] = None,
) -> HistoryPage:
    """Published versions, newest first; a filtered page may be short while `next` is not null."""
    if await services.source.record(pair) is None:
        raise PairUnknownError(pair)
    entries, following = await services.trail.history(pair, limit, before, _shown(workload, cause))
    return HistoryPage(entries=entries, next=following)


def _shown(workload: str | None, cause: str | None) -> Callable[[Past], HistoryItem | None]:
    def shown(entry: Past) -> HistoryItem | None:
        item = _item(entry)
        if cause is not None and item.cause != cause:
            return None
        concerned = {*item.moved, *item.returned, *(alarm.get("workload") for alarm in item.drift)}
        by_operator = "scope" in entry.values and item.scope in (workload, None)
        return item if workload is None or workload in concerned or by_operator else None

    return shown


def _item(entry: Past) -> HistoryItem:
    values = {name: value for name, value in entry.values.items() if name in HistoryItem.model_fields}
    if "lineage" in values:
        values["lineage"] = boots.of_lineage(values["lineage"])
    stamp = {"id": entry.id, "version": entry.version, "published_ms": entry.published_ms}
    try:
        return HistoryItem.model_validate({"cause": "unknown", **values, **stamp})
    except ValidationError:
        # One entry that somebody spoilt must not hide all others.
        return HistoryItem.model_validate({"cause": "unknown", **stamp})
