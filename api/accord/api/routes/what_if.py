"""What any coefficients would have been worth on recent traffic."""

from __future__ import annotations

from fastapi import APIRouter

from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.errors import InvalidValue

from ..errors import ValueInvalidError, responses
from ..models import WhatIf, WhatIfRequest
from ..services import Key, PairId, UseServices

router = APIRouter(prefix="/v1", tags=["what-if"])


@router.post("/pairs/{pair}/workloads/{key}/what-if", responses=responses(404, 503))
async def what_if(pair: PairId, key: Key, asked: WhatIfRequest, services: UseServices) -> WhatIf:
    """Judges coefficients against those in force, label by label on recent traffic. Nothing is changed."""
    served, _ = await services.tables.get(pair)
    table = await services.learnt.table(served.body)
    in_force = table.row(key)
    proposed = _proposed(asked, table, in_force.request_variance)
    body = await services.source.state_body(pair)
    found = await services.learnt.what_if(body, key, proposed, in_force, table.basis)
    return WhatIf.model_validate(found)


def _proposed(asked: WhatIfRequest, table: CoefficientTable, request_variance: float) -> Coefficients:
    size = table.basis.size
    slopes = asked.slopes if asked.slopes is not None else [asked.slope or 0.0] + [0.0] * (size - 1)
    has = f"this pair has K = {table.k} positions and F = {size} slopes (knots {list(table.knots)})"
    for field, values, expected in (("slopes", slopes, size), ("intercepts", asked.intercepts, table.k)):
        if len(values) != expected:
            raise ValueInvalidError(f"must have {expected} values; {has}", field=field, value=values)
    if asked.request_variance is not None:
        request_variance = asked.request_variance
    try:
        return Coefficients(slopes, asked.intercepts, request_variance)  # type: ignore[arg-type]  # lists become arrays
    except InvalidValue as error:
        field = "slope" if error.field == "slopes" and asked.slopes is None else error.field
        raise ValueInvalidError(error.why, field=field, value=getattr(asked, field, None)) from None
