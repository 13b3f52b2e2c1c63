"""What drafting and verifying cost the engines of a pair, as they measured it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from accord.learner.costs import CostCurve

from ..bounds import MAX_PAGE
from ..engine_costs import Reported, reported
from ..errors import PairUnknownError, responses
from ..models import Costs, DeadSpot, EngineCostTables, RefusedCosts
from ..services import PairId, UseServices

router = APIRouter(prefix="/v1", tags=["advice"])


@router.get("/pairs/{pair}/costs", responses=responses(404, 503))
async def costs(
    pair: PairId,
    services: UseServices,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Engines a page")] = 100,
    after: Annotated[str, Query(max_length=256, description="The last engine of the page before")] = "",
) -> Costs:
    """Cost tables of the engines that have them, with their dead spots in plain words.

    An engine measures its tables when it starts with adaptive verification. What cannot be a cost table is refused.
    """
    if await services.source.record(pair) is None:
        raise PairUnknownError(pair)
    statuses = await services.source.engines(pair)
    told = sorted(name for name, status in statuses.items() if name > after and status.get("costs") is not None)
    usable, refused = reported({name: statuses[name] for name in told[:limit]})
    return Costs(
        engines=[_tables(found) for found in usable],
        refused=[RefusedCosts(engine=name, message=why) for name, why in refused.items()],
        next=told[limit - 1] if len(told) > limit else None,
    )


def _tables(found: Reported) -> EngineCostTables:
    draft, verify = found.costs.draft, found.costs.verify
    return EngineCostTables(
        engine=found.engine,
        draft=_points(draft),
        verify=_points(verify),
        dead_spots=[
            DeadSpot(
                table="draft" if curve is draft else "verify",
                kind=spot.kind.value,
                tokens_from=spot.first,
                tokens_to=spot.last,
                message=spot.message,
            )
            for curve, unit in ((draft, "requests"), (verify, "tokens"))
            for spot in curve.dead_spots(unit)
        ],
        seen_ms=found.seen_ms,
    )


def _points(curve: CostCurve) -> list[tuple[int, float]]:
    return list(zip(curve.sizes, curve.ms, strict=True))
