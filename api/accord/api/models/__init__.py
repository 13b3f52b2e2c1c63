"""What the api answers, as OpenAPI describes it; one noun a module."""

from .advice import Advice, BatchAdvice, Costs, DeadSpot, EngineCostTables, RefusedCosts
from .basic import CoefficientRow, CoefficientTableView, Health, Number
from .pairs import Engine, EngineInfluence, Identity, Lag, PairDetail, PairEffects, PairItem, PairList, WorkloadGlance
from .what_if import LossDifference, RowMetrics, WhatIf, WhatIfPosition, WhatIfRequest
from .workloads import Calibration, PositionView, ReliabilityBin, StandardErrors, SurvivalBin, WorkloadView

__all__ = [
    "Advice",
    "BatchAdvice",
    "Calibration",
    "CoefficientRow",
    "CoefficientTableView",
    "Costs",
    "DeadSpot",
    "Engine",
    "EngineCostTables",
    "EngineInfluence",
    "Health",
    "Identity",
    "Lag",
    "LossDifference",
    "Number",
    "PairDetail",
    "PairEffects",
    "PairItem",
    "PairList",
    "PositionView",
    "RefusedCosts",
    "ReliabilityBin",
    "RowMetrics",
    "StandardErrors",
    "SurvivalBin",
    "WhatIf",
    "WhatIfPosition",
    "WhatIfRequest",
    "WorkloadGlance",
    "WorkloadView",
]
