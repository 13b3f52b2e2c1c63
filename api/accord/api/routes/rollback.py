"""Rollback: an old version published as a new one."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from accord.learner.changes import roll_back
from accord.learner.coefficients import CoefficientTable
from accord.learner.errors import Refusal
from accord.learner.overrides import Scope
from accord.learner.store.errors import StoreCorruptError

from ..etag import IfMatch
from ..logs import event
from ..models import OverrideView, PutRollback, RolledBack
from ..sender import author
from ..services import Key, PairId, Services, UseServices
from .guarded import CHANGING, UseIfMatch, changed

router = APIRouter(prefix="/v1", tags=["overrides"])


@router.post("/pairs/{pair}/rollback", responses=CHANGING)
async def roll_back_pair(
    pair: PairId, body: PutRollback, expected: UseIfMatch, request: Request, services: UseServices, response: Response
) -> RolledBack:
    """Serves every row of an old version again, under a new version."""
    return await _roll_back(services, pair, None, body, expected, request, response)


@router.post("/pairs/{pair}/workloads/{key}/rollback", responses=CHANGING)
async def roll_back_workload(
    pair: PairId,
    key: Key,
    body: PutRollback,
    expected: UseIfMatch,
    request: Request,
    services: UseServices,
    response: Response,
) -> RolledBack:
    """Serves one workload's row of an old version again; its prior row where it had none."""
    return await _roll_back(services, pair, key, body, expected, request, response)


async def _roll_back(
    services: Services,
    pair: str,
    scope: Scope,
    body: PutRollback,
    expected: IfMatch,
    request: Request,
    response: Response,
) -> RolledBack:
    by = author(request, body.actor, body.reason)
    stored = await services.trail.version(pair, body.version)
    try:
        old = CoefficientTable.from_json(stored.body)
    except Refusal as error:
        raise StoreCorruptError(f"version {body.version} of {pair}: {error}") from None
    change, _ = await changed(
        services,
        pair,
        expected,
        lambda at: roll_back(at, scope, old, by, hold=body.hold, expires_in_s=body.expires_in_s),
        response,
    )
    event("rolled back", pair=pair, scope=scope, to=body.version, actor=by.actor, version=change.table.version)
    held = change.override
    return RolledBack(
        version=change.table.version,
        of_version=body.version,
        revision=change.revision,
        override=None if held is None else OverrideView.model_validate(held.view()),
    )
