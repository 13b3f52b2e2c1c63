"""Overrides: what operators serve in place of what was learnt."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from accord.learner.changes import Author, Wish, lift, put
from accord.learner.coefficients import Coefficients
from accord.learner.overrides import Kind, Scope

from ..errors import NoOverrideError, ValueInvalidError
from ..etag import IfMatch
from ..logs import event
from ..models import (
    Actor,
    Lift,
    OneOverride,
    OverrideChanged,
    OverrideList,
    OverrideView,
    PinWarning,
    PutOverride,
    Reason,
)
from ..sender import author
from ..services import Key, PairId, Services, UseServices
from ..writer import revision_tag
from .guarded import CHANGING, READING, REFUSALS, UseIfMatch, changed, refused

router = APIRouter(prefix="/v1", tags=["overrides"])

LiftReason = Annotated[Reason | None, Query(description="Why, where the request has no body")]
LiftActor = Annotated[Actor | None, Query(description="Who, where the request has no body")]


@router.get("/pairs/{pair}/overrides", responses=READING)
async def overrides(pair: PairId, services: UseServices, response: Response) -> OverrideList:
    """Every override of a pair, the whole pair's first."""
    standing = await services.writer.settled(pair)
    response.headers["ETag"] = revision_tag(standing.revision)
    ordered = sorted(standing.overrides.values(), key=lambda item: item.scope or "")
    views = [OverrideView.model_validate(item.view()) for item in ordered]
    return OverrideList(revision=standing.revision, overrides=views)


@router.get("/pairs/{pair}/override", responses=READING)
async def pair_override(pair: PairId, services: UseServices, response: Response) -> OneOverride:
    """The override of the whole pair."""
    return await _get(services, pair, None, response)


@router.get("/pairs/{pair}/workloads/{key}/override", responses=READING)
async def workload_override(pair: PairId, key: Key, services: UseServices, response: Response) -> OneOverride:
    """The override of one workload; one of the whole pair is not shown here."""
    return await _get(services, pair, key, response)


@router.put("/pairs/{pair}/override", responses=CHANGING)
async def put_pair_override(
    pair: PairId, body: PutOverride, expected: UseIfMatch, request: Request, services: UseServices, response: Response
) -> OverrideChanged:
    """Overrides every workload of a pair that has no override of its own, and the prior row."""
    return await _put(services, pair, None, body, expected, request, response)


@router.put("/pairs/{pair}/workloads/{key}/override", responses=CHANGING)
async def put_workload_override(
    pair: PairId,
    key: Key,
    body: PutOverride,
    expected: UseIfMatch,
    request: Request,
    services: UseServices,
    response: Response,
) -> OverrideChanged:
    """Overrides one workload, also one that the pair has not seen yet."""
    return await _put(services, pair, key, body, expected, request, response)


@router.delete("/pairs/{pair}/override", responses=CHANGING)
async def delete_pair_override(
    pair: PairId,
    expected: UseIfMatch,
    request: Request,
    services: UseServices,
    response: Response,
    body: Lift | None = None,
    reason: LiftReason = None,
    actor: LiftActor = None,
) -> OverrideChanged:
    """Lifts the override of the whole pair; learnt coefficients return at once."""
    return await _lift(services, pair, None, _why(request, body, reason, actor), expected, response)


@router.delete("/pairs/{pair}/workloads/{key}/override", responses=CHANGING)
async def delete_workload_override(
    pair: PairId,
    key: Key,
    expected: UseIfMatch,
    request: Request,
    services: UseServices,
    response: Response,
    body: Lift | None = None,
    reason: LiftReason = None,
    actor: LiftActor = None,
) -> OverrideChanged:
    """Lifts the override of one workload; what was learnt, or the whole pair's override, returns at once."""
    return await _lift(services, pair, key, _why(request, body, reason, actor), expected, response)


async def _get(services: Services, pair: str, scope: Scope, response: Response) -> OneOverride:
    standing = await services.writer.settled(pair)
    etag = revision_tag(standing.revision)
    item = standing.overrides.get(scope)
    if item is None:
        raise NoOverrideError(f"there is no override for {scope or 'the whole pair'}", headers={"ETag": etag})
    response.headers["ETag"] = etag
    return OneOverride(override=OverrideView.model_validate(item.view()), revision=standing.revision)


async def _put(
    services: Services,
    pair: str,
    scope: Scope,
    body: PutOverride,
    expected: IfMatch,
    request: Request,
    response: Response,
) -> OverrideChanged:
    by = author(request, body.actor, body.reason)
    try:
        row = None if body.coefficients is None else Coefficients.from_dict(body.coefficients.model_dump())
        wish = Wish(Kind(body.kind), row, body.shift, body.expires_in_s)
    except REFUSALS as error:
        raise refused(error) from None
    change, found = await changed(services, pair, expected, lambda at: put(at, scope, wish, by), response)
    worse = found.warning() if row is not None else None
    event("override put", pair=pair, scope=scope, kind=body.kind, actor=by.actor, version=change.table.version)
    assert change.override is not None
    return OverrideChanged(
        override=OverrideView.model_validate(change.override.view()),
        revision=change.revision,
        version=change.table.version,
        warning=None if worse is None else PinWarning.model_validate(worse),
    )


def _why(request: Request, body: Lift | None, reason: str | None, actor: str | None) -> Author:
    """From the body, or else from the query."""
    given = (body.reason if body else None) or reason
    if given is None:
        raise ValueInvalidError("is required, in the body or in the query", field="reason")
    return author(request, (body.actor if body else None) or actor, given)


async def _lift(
    services: Services, pair: str, scope: Scope, by: Author, expected: IfMatch, response: Response
) -> OverrideChanged:
    change, _ = await changed(services, pair, expected, lambda at: lift(at, scope, by), response)
    event("override lifted", pair=pair, scope=scope, actor=by.actor, version=change.table.version)
    return OverrideChanged(override=None, revision=change.revision, version=change.table.version)
