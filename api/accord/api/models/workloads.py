"""Answers about one workload."""

from __future__ import annotations

from pydantic import BaseModel, Field

from .basic import CoefficientRow, Number
from .overrides import OverrideView


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
    learnt: CoefficientRow | None = Field(None, description="As the last refit found them, whatever is overridden")
    override: OverrideView | None = Field(None, description="In force here: its own, or else the whole pair's")
    standard_errors: StandardErrors | None = Field(None, description="Of the learnt row")
    labels: int = Field(description="Every label ever learnt")
    memory_labels: Number = Field(None, description="After this many new labels old evidence counts 1 / e")
    event_time_ms: int | None = Field(None, description="When evidence last came, unix milliseconds")
    held_back: dict[str, Number] | None = Field(None, description="Why the guard keeps an older row in force")
    on_trial: CoefficientRow | None = Field(None, description="A large step that later labels must confirm first")
    drift_alarms: int = Field(0, description="How often drift has shortened the memory")
    drift_time_ms: int | None = Field(None, description="When it last did, unix milliseconds")
    calibration: Calibration
