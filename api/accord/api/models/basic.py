"""What several answers are made of."""

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


class Health(BaseModel):
    """The answer of a healthy process."""

    status: str
