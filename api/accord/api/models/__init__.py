"""What the api answers, as OpenAPI describes it; one noun a module."""

from .advice import Advice, BatchAdvice, Costs, DeadSpot, EngineCostTables, RefusedCosts
from .basic import CoefficientRow, CoefficientTableView, Health, Number
from .history import AuditItem, AuditPage, HistoryItem, HistoryPage
from .overrides import (
    Actor,
    Lift,
    OneOverride,
    OverrideChanged,
    OverrideList,
    OverrideView,
    PinWarning,
    PutOverride,
    PutRollback,
    Reason,
    RolledBack,
)
from .pairs import Engine, EngineInfluence, Identity, Lag, PairDetail, PairEffects, PairItem, PairList, WorkloadGlance
from .what_if import LossDifference, RowMetrics, WhatIf, WhatIfPosition, WhatIfRequest
from .workloads import Calibration, PositionView, ReliabilityBin, StandardErrors, SurvivalBin, WorkloadView

__all__ = [
    "Actor",
    "Advice",
    "AuditItem",
    "AuditPage",
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
    "HistoryItem",
    "HistoryPage",
    "Identity",
    "Lag",
    "Lift",
    "LossDifference",
    "Number",
    "OneOverride",
    "OverrideChanged",
    "OverrideList",
    "OverrideView",
    "PairDetail",
    "PairEffects",
    "PairItem",
    "PairList",
    "PinWarning",
    "PositionView",
    "PutOverride",
    "PutRollback",
    "Reason",
    "RefusedCosts",
    "ReliabilityBin",
    "RolledBack",
    "RowMetrics",
    "StandardErrors",
    "SurvivalBin",
    "WhatIf",
    "WhatIfPosition",
    "WhatIfRequest",
    "WorkloadGlance",
    "WorkloadView",
]
