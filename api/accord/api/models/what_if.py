"""The what-if: proposed coefficients in, how they would have predicted out."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accord.learner.basis import MAX_KNOTS
from accord.learner.coefficients import COEFFICIENT_LIMIT, MAX_REQUEST_VARIANCE
from accord.learner.pair import MAX_K

from .basic import Number

Coefficient = Annotated[float, Field(strict=True, ge=-COEFFICIENT_LIMIT, le=COEFFICIENT_LIMIT, allow_inf_nan=False)]


class WhatIfRequest(BaseModel):
    """Coefficients to be judged: `slopes` over the pair's basis, or one `slope` for a straight line."""

    model_config = ConfigDict(extra="forbid")

    slopes: list[Coefficient] | None = Field(
        None, min_length=1, max_length=1 + MAX_KNOTS, description="F values; cumulative sums must be >= 0"
    )
    slope: Coefficient | None = Field(None, description="The first slope, with no bends; instead of `slopes`")
    intercepts: list[Coefficient] = Field(
        min_length=1, max_length=MAX_K, description="K values, one for each draft position"
    )
    request_variance: Annotated[
        float | None, Field(strict=True, ge=0.0, le=MAX_REQUEST_VARIANCE, allow_inf_nan=False)
    ] = Field(None, description="Default: as in force. Not judged, see `notes`")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.slopes is None) == (self.slope is None):
            raise ValueError("exactly one of slopes and slope must be given")
        return self


class RowMetrics(BaseModel):
    """How one row predicts the recent labels; null where they are too few."""

    log_loss: Number = Field(description="Nats per label")
    ece: Number
    auc: Number
    brier: Number
    accepted_per_step: Number = Field(description="Drafts of a block that the row expects to be accepted")


class LossDifference(BaseModel):
    """Proposed minus in force; below 0 the proposal is better."""

    log_loss: Number = Field(description="Nats per label")
    noise: Number = Field(description="Standard error of the paired difference")


class WhatIfPosition(BaseModel):
    """What happened at one draft position, and what both rows say of it."""

    position: int
    labels: Number
    accepted: Number
    proposed: Number
    in_force: Number


class WhatIf(BaseModel):
    """The proposed row, the row in force and the learner's own fit on the same recent labels."""

    labels: Number = Field(description="Recent labels, faded")
    proposed: RowMetrics
    in_force: RowMetrics
    learnt: RowMetrics | None = Field(description="The learner's last fit; null for a workload that it has not seen")
    realised_per_step: Number = Field(description="Drafts of a block that were accepted")
    difference: LossDifference | None = Field(description="Null with too few labels")
    verdict: Literal["better", "no_difference", "worse"]
    message: str
    positions: list[WhatIfPosition]
    notes: list[str] = Field(description="What this answer cannot tell")
