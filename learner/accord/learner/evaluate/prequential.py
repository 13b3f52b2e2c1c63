"""Prequential evaluation: every step is predicted before its verdict is learnt, as a serving engine would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..basis import Array
from ..errors import InvalidValue
from ..workload import WorkloadKey
from .metrics import Mask, Metrics, accepted_per_step, by_position, workload_ece
from .predictors import Line, Predictor
from .trace import Trace


def replay(trace: Trace, predictors: Mapping[str, Predictor]) -> dict[str, Array]:
    """Feeds a trace to every predictor, step by step, all K drafts verified; returns their predictions [N, K]."""
    predictions = {name: np.empty(trace.features.shape) for name in predictors}
    _, request = np.unique(trace.request, return_inverse=True)
    admitted = np.full(trace.rows, trace.k)
    for rows in trace.steps():
        step = trace.features[rows], trace.workload[rows], request[rows]
        for name, predictor in predictors.items():
            predictions[name][rows] = predictor.predict(*step)
            predictor.learn(*step, trace.accepted[rows], admitted[rows])
    return predictions


@dataclass(frozen=True)
class Evaluation:
    """What a replay showed.

    Attributes:
        trace: the trace replayed.
        overall: metrics of each predictor over all labels.
        workloads: metrics by workload key (those with labels), then predictor.
        classes: the same by temperature class, over all labels of its workloads.
        positions: metrics of each predictor by draft position.
        expected: accepted drafts that each predictor expected, per request and step; realised: what there were.
        coefficients: slopes and intercepts at the end, by predictor, then workload key.
    """

    trace: Trace
    overall: dict[str, Metrics]
    workloads: dict[str, dict[str, Metrics]]
    classes: dict[str, dict[str, Metrics]]
    positions: dict[str, list[Metrics]]
    expected: dict[str, float]
    realised: float
    coefficients: dict[str, dict[str, Line]]

    def workload_ece(self, predictor: str) -> float:
        """The label-weighted mean of the workloads' ECE."""
        return workload_ece([row[predictor] for row in self.workloads.values()])

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `accord evaluate --json`."""
        return {
            "pair": self.trace.pair.to_dict(),
            "overall": {
                name: {"labels": m.labels, **m.to_dict(), "workload_ece": self.workload_ece(name)}
                for name, m in self.overall.items()
            },
            "workloads": _by_group(self.workloads),
            "coefficients": {
                name: {key: {"slopes": s.tolist(), "intercepts": b.tolist()} for key, (s, b) in rows.items()}
                for name, rows in self.coefficients.items()
            },
            "classes": _by_group(self.classes),
            "accepted_per_step": {"realised": self.realised, "expected": self.expected},
        }


def evaluate_trace(trace: Trace, predictors: Mapping[str, Predictor]) -> Evaluation:
    """Replays a trace through fresh predictors and judges each on every label.

    Raises:
        InvalidValue: when there is no predictor or no label.
    """
    if not predictors:
        raise InvalidValue("predictors", [], "at least one is needed")
    if not trace.rows:
        raise InvalidValue("features", trace.features.shape, "the trace has no rows")
    predictions = replay(trace, predictors)
    labelled, y = trace.labelled, trace.y
    workloads, classes = _groups(trace)
    return Evaluation(
        trace=trace,
        overall={name: Metrics.of(p[labelled], y[labelled]) for name, p in predictions.items()},
        workloads=_judge(trace, workloads, predictions),
        classes=_judge(trace, classes, predictions),
        positions={name: by_position(p, y, labelled) for name, p in predictions.items()},
        expected={name: accepted_per_step(p) for name, p in predictions.items()},
        realised=float(trace.accepted.mean()),
        coefficients={name: predictor.coefficients() for name, predictor in predictors.items()},
    )


def _groups(trace: Trace) -> tuple[dict[str, Mask], dict[str, Mask]]:
    """The rows [N] of each workload, and of each temperature class, that occurs."""
    workloads = {trace.workloads[slot]: trace.workload == slot for slot in np.unique(trace.workload)}
    classes: dict[str, Mask] = {}
    for key, rows in workloads.items():
        name = WorkloadKey.parse(key).temperature_class.value
        classes[name] = classes.get(name, False) | rows
    return workloads, classes


def _judge(trace: Trace, groups: Mapping[str, Mask], predictions: Mapping[str, Array]) -> dict[str, dict[str, Metrics]]:
    labelled, y = trace.labelled, trace.y
    masks = {key: labelled & rows[:, None] for key, rows in groups.items()}
    return {key: {name: Metrics.of(p[mask], y[mask]) for name, p in predictions.items()} for key, mask in masks.items()}


def _by_group(groups: Mapping[str, Mapping[str, Metrics]]) -> dict[str, Any]:
    return {
        key: {"labels": next(iter(row.values())).labels, **{name: m.to_dict() for name, m in row.items()}}
        for key, row in groups.items()
    }
