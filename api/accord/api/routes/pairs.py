"""The registered pairs: whose acceptance is being estimated, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from accord.learner.store.records import PairRecord

from .. import boots
from ..bounds import MAX_PAGE
from ..engine_status import state_of, whole
from ..errors import PairUnknownError, responses
from ..models import Engine, Identity, Lag, OverrideView, PairDetail, PairItem, PairList
from ..services import PairId, UseServices

router = APIRouter(prefix="/v1", tags=["pairs"])


@router.get("/pairs", responses=responses(503))
async def pairs(
    services: UseServices,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Pairs a page")] = 100,
    after: Annotated[str, Query(max_length=128, description="The last id of the page before")] = "",
) -> PairList:
    """Every registered pair, in the order of their ids."""
    listed, unreadable, following = await services.source.pairs(after, limit)
    items = [
        PairItem(
            id=item.pair_id,
            identity=_identity(item.record),
            knots=list(item.record.knots),
            registered_ms=item.record.registered_ms,
            version=item.version,
            published_ms=item.published_ms,
            workloads=item.workloads,
        )
        for item in listed
    ]
    return PairList(pairs=items, unreadable=unreadable, next=following)


@router.get("/pairs/{pair}", responses=responses(404, 503))
async def pair_detail(pair: PairId, services: UseServices) -> PairDetail:
    """One pair: its engines, what was learnt, and how far the learner is behind."""
    found = await services.source.detail(pair)
    if found is None:
        raise PairUnknownError(pair)
    table, _ = await services.tables.get(pair)
    standing = await services.writer.settled(pair)
    learnt = await services.learnt.pair(found.body, found.counters, table.body)
    whole = standing.overrides.get(None)
    return PairDetail(
        id=pair,
        identity=_identity(found.record),
        knots=list(found.record.knots),
        registered_ms=found.record.registered_ms,
        version=table.version,
        published_ms=table.published_ms,
        committed_ms=found.committed_ms,
        watermark=found.watermark,
        lag=Lag(entries=found.waiting, ms=_since(found.oldest_ms, found.now_ms) or 0),
        engines_known=found.engines_known,
        engines=[_engine(name, status, found.now_ms) for name, status in sorted(found.engines.items())],
        labels=learnt["labels"],
        fit_status=learnt["fit_status"],
        pair_effects=learnt["pair_effects"],
        workloads=learnt["workloads"],
        counters=_counters(learnt["counters"]),
        influence=learnt["influence"],
        carried=learnt["carried"],
        revision=standing.revision,
        overrides=len(standing.overrides),
        override=None if whole is None else OverrideView.model_validate(whole.view()),
    )


def _counters(counted: Mapping[str, Any]) -> dict[str, Any]:
    shared = counted.get("last_shared")
    return dict(counted) if not shared else {**counted, "last_shared": boots.of(shared, "boot", "other")}


def _identity(record: PairRecord) -> Identity:
    return Identity.model_validate(record.pair.to_dict())


def _engine(name: str, status: Mapping[str, Any], now_ms: int) -> Engine:
    seen = whole(status.get("time_ms"))
    return Engine(
        engine=name,
        seen_ms=seen,
        silent_ms=_since(seen, now_ms),
        version=whole(status.get("version")),
        state=state_of(status, now_ms),
        status=boots.of(status, "boot"),
    )


def _since(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else max(0, now_ms - then_ms)
