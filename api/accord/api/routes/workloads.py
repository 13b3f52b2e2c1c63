"""One workload of a pair: coefficients, their standard errors, and how well they predict."""

from __future__ import annotations

import json

from fastapi import APIRouter

from ..errors import responses
from ..models import Calibration, CoefficientRow, WorkloadView
from ..services import Key, PairId, UseServices

router = APIRouter(prefix="/v1", tags=["workloads"])


@router.get("/pairs/{pair}/workloads/{key}", responses=responses(404, 503))
async def workload(pair: PairId, key: Key, services: UseServices) -> WorkloadView:
    """A workload as the learner knows it; one that the pair has not seen answers the prior row, with `prior` true."""
    table, _ = await services.tables.get(pair)
    body = await services.source.state_body(pair)
    view = await services.learnt.workload(body, key) if body else None
    if view is not None:
        return WorkloadView.model_validate({**view, "prior": False})
    served = json.loads(table.body)
    row = served["workloads"].get(key, served["prior"])
    return WorkloadView(
        workload=key,
        prior=True,
        version=table.version,
        coefficients=CoefficientRow.model_validate(row),
        labels=0,
        calibration=Calibration(labels=0, accepted=0),
    )
