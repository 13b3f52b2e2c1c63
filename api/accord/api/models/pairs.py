"""Answers about pairs: who takes part, and what was learnt."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ..engine_status import SILENT, SILENT_MS, STATES, STOPPED, UNKNOWN
from .basic import Number
from .overrides import OverrideView


class Identity(BaseModel):
    """Whose acceptance is estimated."""

    target: str
    draft: str
    method: str
    draft_sample_method: str
    k: int


class PairItem(BaseModel):
    """A pair in the list."""

    id: str
    identity: Identity
    knots: list[float]
    registered_ms: int
    version: int = Field(description="Of the coefficients in force; 0 before the first publication")
    published_ms: int = Field(description="Unix milliseconds; 0 before the first publication")
    workloads: int = Field(description="How many workloads have coefficients of their own")


class PairList(BaseModel):
    """Registered pairs in the order of their ids."""

    pairs: list[PairItem]
    unreadable: list[str] = Field(description="Ids of pairs whose stored record is damaged")
    next: str | None = Field(description="What to pass as `after` for the next page; null on the last")


class Engine(BaseModel):
    """An engine as it last reported itself."""

    engine: str
    seen_ms: int | None = Field(description="When it last reported, unix milliseconds")
    silent_ms: int | None = Field(description="How long ago that was, by the store's clock")
    version: int | None = Field(description="The version of the coefficients that it applies")
    state: str = Field(
        description=f"What it says of itself ({', '.join(STATES)}), or {STOPPED}, {SILENT} or {UNKNOWN}: "
        f"{SILENT} when it last reported more than {SILENT_MS // 1000} s ago, {UNKNOWN} when it says nothing usable"
    )
    status: dict[str, Any] = Field(description="The report itself")


class Lag(BaseModel):
    """What engines have sent and the learner has not learnt yet."""

    entries: int
    ms: int = Field(description="How long the oldest of them has waited; 0 without any")


class WorkloadGlance(BaseModel):
    """A workload in one line; metrics are null where there is too little to say."""

    workload: str
    labels: Number = Field(description="Every label ever learnt")
    event_time_ms: int | None = Field(description="When evidence last came, unix milliseconds")
    accepted: Number = Field(description="Accepted share of the recent labels")
    log_loss: Number
    ece: Number
    auc: Number
    brier: Number


class PairEffects(BaseModel):
    """What the workloads of a pair share: where a new one starts, and how far they spread."""

    slopes: list[Number]
    intercepts: list[Number]
    slope_sd: list[Number]
    level_sd: Number
    intercept_sd: Number


class EngineInfluence(BaseModel):
    """How much of what is known comes from one engine."""

    engine: str
    labels: Number = Field(description="Its labels that count now, faded")
    set_aside: int = Field(description="Labels that do not count: they contradicted every other engine's")


class PairDetail(BaseModel):
    """A pair: who takes part, what was learnt, and how far behind that is."""

    id: str
    identity: Identity
    knots: list[float]
    registered_ms: int
    version: int = Field(description="Of the coefficients in force; 0 before the first publication")
    published_ms: int
    committed_ms: int = Field(description="When the learner last took something in; 0 before it did")
    watermark: str = Field(description="The stream entry up to which everything is learnt")
    lag: Lag
    engines: list[Engine]
    engines_known: int = Field(0, description="How many engines have reported; more than are listed where it is many")
    labels: int
    fit_status: str | None = Field(description="How the last refit ended; null before the first")
    pair_effects: PairEffects | None
    workloads: list[WorkloadGlance]
    counters: dict[str, Any] = Field(description="What the learner counted: summaries, refusals by reason, fits, ...")
    influence: list[EngineInfluence] = Field([], description="Engines that reported evidence recently")
    revision: int = Field(0, description="Of the overrides; grows with every change, and is what `If-Match` names")
    overrides: int = Field(0, description="How many overrides are in force")
    override: OverrideView | None = Field(None, description="The one of the whole pair")
    carried: dict[str, Any] | None = Field(None, description="The known pair that this pair's first prior came from")
