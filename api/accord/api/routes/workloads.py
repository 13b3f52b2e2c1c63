"""One workload of a pair: coefficients, their standard errors, and how well they predict."""

from __future__ import annotations

import json

from fastapi import APIRouter

from accord.learner.store.operators import check_tables

from ..errors import responses
from ..models import Calibration, CoefficientRow, OverrideView, WorkloadView
from ..services import Key, PairId, UseServices

router = APIRouter(prefix="/v1", tags=["workloads"])


@router.get("/pairs/{pair}/workloads/{key}", responses=responses(404, 503))
async def workload(pair: PairId, key: Key, services: UseServices) -> WorkloadView:
    """A workload as the learner knows it; one that the pair has not seen answers the prior row, with `prior` true."""
    table, _ = await services.tables.get(pair)
    standing = await services.writer.settled(pair)
    item = standing.overrides.get(key) or standing.overrides.get(None)
    override = None if item is None else OverrideView.model_validate(item.view())
    body = await services.source.state_body(pair)
    view = await services.learnt.workload(body, key, table.body) if body else None
    if view is not None:
        return WorkloadView.model_validate({**view, "prior": False, "override": override})
    served = json.loads(table.body)
    row = served["workloads"].get(key, served["prior"])
    learnt = check_tables(standing).learnt.row(key) if item else None
    return WorkloadView(
        workload=key,
        prior=True,
        version=table.version,
        coefficients=CoefficientRow.model_validate(row),
        learnt=None if learnt is None else CoefficientRow.model_validate(learnt.to_dict()),
        override=override,
        labels=0,
        calibration=Calibration(labels=0, accepted=0),
    )
