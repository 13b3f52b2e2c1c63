"""What operators send and see when they override coefficients."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accord.learner.basis import MAX_KNOTS
from accord.learner.bounds import EXACT
from accord.learner.coefficients import COEFFICIENT_LIMIT, MAX_REQUEST_VARIANCE
from accord.learner.overrides import MAX_ACTOR, MAX_EXPIRES_S, MAX_REASON, MAX_SHIFT
from accord.learner.pair import MAX_K

from .basic import CoefficientRow
from .text import SafeText

Coefficient = Annotated[float, Field(ge=-COEFFICIENT_LIMIT, le=COEFFICIENT_LIMIT, allow_inf_nan=False)]
Reason = Annotated[SafeText, Field(min_length=1, max_length=MAX_REASON, description="Why; kept in the audit")]
Actor = Annotated[
    SafeText,
    Field(min_length=1, max_length=MAX_ACTOR, description="Who; may be left out when the request's token has a name"),
]
ExpiresInS = Annotated[
    float, Field(ge=1, le=MAX_EXPIRES_S, allow_inf_nan=False, description="Seconds until it ends by itself")
]


class Pinned(BaseModel):
    """The row that a pin serves."""

    model_config = ConfigDict(extra="forbid", strict=True)

    slopes: list[Coefficient] = Field(
        min_length=1, max_length=MAX_KNOTS + 1, description="F values; cumulative sums >= 0"
    )
    intercepts: list[Coefficient] = Field(min_length=1, max_length=MAX_K, description="K values")
    request_variance: Annotated[float, Field(ge=0, le=MAX_REQUEST_VARIANCE, allow_inf_nan=False)] = 0.0


class PutOverride(BaseModel):
    """An override to put: `pin` with coefficients, `shift` with a shift, or `freeze`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["pin", "shift", "freeze"]
    coefficients: Pinned | None = Field(None, description="Of a pin: served exactly")
    shift: Annotated[float, Field(ge=-MAX_SHIFT, le=MAX_SHIFT, allow_inf_nan=False)] | None = Field(
        None, description="Of a shift: added to every learnt intercept, in log-odds"
    )
    reason: Reason
    actor: Actor | None = None
    expires_in_s: ExpiresInS | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        for name, kind in (("coefficients", "pin"), ("shift", "shift")):
            if (getattr(self, name) is not None) != (self.kind == kind):
                raise ValueError(f"{name} belong to a {kind}, which needs them, and to nothing else")
        return self


class Lift(BaseModel):
    """Why an override is taken away, and by whom."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Reason | None = None
    actor: Actor | None = None


class PutRollback(BaseModel):
    """An old version to bring back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=0, lt=EXACT, description="The version whose rows return; 0 is the cold start")
    reason: Reason
    actor: Actor | None = None
    hold: bool = Field(True, description="Keep the rows until lifted; otherwise the next version replaces them")
    expires_in_s: ExpiresInS | None = Field(None, description="Seconds until a held one ends by itself")


class OverrideView(BaseModel):
    """An override in force."""

    scope: str | None = Field(description="Workload key; null for the whole pair")
    kind: Literal["pin", "shift", "freeze", "rollback"]
    coefficients: CoefficientRow | None = Field(description="What it serves; null for a shift and for a whole pair")
    shift: float | None
    reason: str
    actor: str
    token: str | None = Field(description="Name of the token that it came with")
    created_ms: int = Field(description="Unix milliseconds by the store's clock")
    expires_ms: int | None = Field(description="When it ends by itself; null for never")
    revision: int = Field(description="Of the pair's overrides, as of this one")
    of_version: int | None = Field(description="The version that a rollback keeps in force")


class OverrideList(BaseModel):
    """Every override of a pair; the whole pair's first, then by workload."""

    revision: int = Field(description="Grows with every change; what `If-Match` names")
    overrides: list[OverrideView]


class OneOverride(BaseModel):
    """The override of a scope."""

    override: OverrideView
    revision: int


class PinWarning(BaseModel):
    """A pin predicts recent traffic worse than what was learnt, by more than its noise."""

    message: str
    log_loss_worse_by: float = Field(description="Nats a label")
    noise: float = Field(description="Standard error of that")


class OverrideChanged(BaseModel):
    """What a change of an override led to."""

    override: OverrideView | None = Field(description="In force now; null when it was lifted")
    revision: int
    version: int = Field(description="Of the coefficients that engines get now")
    warning: PinWarning | None = None


class RolledBack(BaseModel):
    """What a rollback led to."""

    version: int = Field(description="Under which the old rows are served now")
    of_version: int
    revision: int
    override: OverrideView | None = Field(description="What keeps them in force; null without hold")
