"""What the api answers, as OpenAPI describes it."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A number, or null where there is nothing to compute it from: JSON has no NaN."""


class CoefficientRow(BaseModel):
    """P(accept) = sigmoid(slopes . x(f) + intercepts[k] + u)."""

    slopes: list[float] = Field(description="F values over the spline basis")
    intercepts: list[float] = Field(description="K values, one for each draft position")
    request_variance: float = Field(description="Variance of the request effect u; 0 switches it off")


class CoefficientTableView(BaseModel):
    """What engines apply: a row for each workload, and the prior row for every other."""

    model_config = {"json_schema_extra": {"description": "Served byte for byte as published."}}

    schema_: int = Field(alias="schema")
    pair: str
    version: int = Field(description="Only grows; 0 before the first publication")
    published_ms: int
    k: int
    knots: list[float]
    prior: CoefficientRow
    workloads: dict[str, CoefficientRow]


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
    labels: int
    fit_status: str | None = Field(description="How the last refit ended; null before the first")
    pair_effects: PairEffects | None
    workloads: list[WorkloadGlance]
    counters: dict[str, Any] = Field(description="What the learner counted: summaries, refusals by reason, fits, ...")
    influence: list[EngineInfluence] = Field([], description="Engines that reported evidence recently")
    carried: dict[str, Any] | None = Field(None, description="The known pair that this pair's first prior came from")


class StandardErrors(BaseModel):
    """Of the coefficients, from the inverse information."""

    slopes: list[Number]
    intercepts: list[Number]


class ReliabilityBin(BaseModel):
    """Predicted against realised acceptance where the prediction lies between low and high."""

    low: Number
    high: Number
    labels: Number
    predicted: Number
    accepted: Number


class SurvivalBin(BaseModel):
    """Predicted against realised survival of a draft prefix."""

    low: Number
    high: Number
    positions: Number
    predicted: Number
    realised: Number


class PositionView(BaseModel):
    """Predicted against realised acceptance at one draft position."""

    position: int
    labels: Number
    accepted: Number
    predicted: Number


class Calibration(BaseModel):
    """How well the coefficients in force predict; null where there is too little to say."""

    labels: Number = None
    accepted: Number = None
    log_loss: Number = None
    ece: Number = None
    auc: Number = None
    brier: Number = None
    reliability: list[ReliabilityBin] = []
    survival: list[SurvivalBin] = []
    positions: list[PositionView] = []


class WorkloadView(BaseModel):
    """A workload: its coefficients, how sure they are, and how well they predict."""

    workload: str
    prior: bool = Field(description="True when the pair has not seen this workload and serves it the prior row")
    version: int = Field(description="Of the coefficients in force")
    coefficients: CoefficientRow = Field(description="As engines apply them")
    learnt: CoefficientRow | None = Field(None, description="As the last refit found them; published when they differ")
    standard_errors: StandardErrors | None = Field(None, description="Of the learnt row")
    labels: int = Field(description="Every label ever learnt")
    memory_labels: Number = Field(None, description="After this many new labels old evidence counts 1 / e")
    event_time_ms: int | None = Field(None, description="When evidence last came, unix milliseconds")
    held_back: dict[str, Number] | None = Field(None, description="Why the guard keeps an older row in force")
    on_trial: CoefficientRow | None = Field(None, description="A large step that later labels must confirm first")
    drift_alarms: int = Field(0, description="How often drift has shortened the memory")
    drift_time_ms: int | None = Field(None, description="When it last did, unix milliseconds")
    calibration: Calibration


class Health(BaseModel):
    """The answer of a healthy process."""

    status: str
