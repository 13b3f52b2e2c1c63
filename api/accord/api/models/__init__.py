"""What the api answers, as OpenAPI describes it; one noun a module."""

from .basic import CoefficientRow, CoefficientTableView, Health, Number
from .pairs import Engine, EngineInfluence, Identity, Lag, PairDetail, PairEffects, PairItem, PairList, WorkloadGlance
from .workloads import Calibration, PositionView, ReliabilityBin, StandardErrors, SurvivalBin, WorkloadView

__all__ = [
    "Calibration",
    "CoefficientRow",
    "CoefficientTableView",
    "Engine",
    "EngineInfluence",
    "Health",
    "Identity",
    "Lag",
    "Number",
    "PairDetail",
    "PairEffects",
    "PairItem",
    "PairList",
    "PositionView",
    "ReliabilityBin",
    "StandardErrors",
    "SurvivalBin",
    "WorkloadGlance",
    "WorkloadView",
]
