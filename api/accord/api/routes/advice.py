"""Whether speculation pays for a workload, and with which K."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from accord.learner.advice import Cost
from accord.learner.costs import EngineCosts
from accord.learner.pair import Pair

from ..engine_costs import freshest, reported
from ..errors import PairUnknownError, ValueInvalidError, responses
from ..models import Advice
from ..services import Key, PairId, Services, UseServices

router = APIRouter(prefix="/v1", tags=["advice"])

DEFAULT_BATCH = 1


@router.get("/pairs/{pair}/workloads/{key}/advice", responses=responses(404, 503))
async def advice(
    pair: PairId,
    key: Key,
    services: UseServices,
    draft_ratio: Annotated[
        float | None,
        Query(ge=0, le=100, allow_inf_nan=False, description="Cost of a draft token over a target step; wins"),
    ] = None,
    batch: Annotated[
        int | None, Query(ge=1, le=16384, description="Requests in a step, for an engine's tables; default 1")
    ] = None,
    engine: Annotated[
        str | None, Query(max_length=256, description="Whose tables; default the engine that reported last")
    ] = None,
) -> Advice:
    """Acceptance by position, tokens per step for every K, and where costs are known the K that pays best.

    Costs are those that an engine measured, unless `draft_ratio` gives them.
    """
    record = await services.source.record(pair)
    if record is None:
        raise PairUnknownError(pair)
    cost, tables, notes = None, None, []
    if draft_ratio is not None:
        cost = Cost.of_ratio(record.pair.k, draft_ratio)
        notes.append(
            "verifying is taken to be free, which holds for small batches only; an engine's tables know better"
        )
    else:
        name, tables = await _tables(services, pair, engine)
        cost = None if tables is None else _measured(record.pair, name, tables, batch)
        notes += _about(tables, record.pair, batch)
    body = await services.source.state_body(pair)
    found = await services.learnt.advice(body, key, record.pair, cost, tables)
    return Advice.model_validate({**found, "notes": [*found["notes"], *notes]})


async def _tables(services: Services, pair: str, engine: str | None) -> tuple[str, EngineCosts | None]:
    usable, refused = reported(await services.source.engines(pair))
    if engine is not None:
        usable = [found for found in usable if found.engine == engine]
        if not usable:
            why = refused.get(engine, "no engine of this name has reported cost tables")
            raise ValueInvalidError(why, field="engine", value=engine)
    chosen = freshest(usable)
    return (chosen.engine, chosen.costs) if chosen else ("", None)


def _measured(pair: Pair, name: str, tables: EngineCosts, batch: int | None) -> Cost:
    return Cost.of_engine(pair.k, name, tables, batch or DEFAULT_BATCH, pair.method)


def _about(tables: EngineCosts | None, pair: Pair, batch: int | None) -> list[str]:
    if tables is None:
        return ["no engine has reported cost tables; give draft_ratio to compare K"]
    notes = []
    if batch is None:
        notes.append("costs are those of a single request; give batch for a busier engine")
    largest, asked = tables.verify.sizes[-1], (batch or DEFAULT_BATCH) * (1 + pair.k)
    if asked > largest:
        notes.append(f"{asked} tokens are more than the {largest} that the engine has measured: costs are extrapolated")
    return notes
