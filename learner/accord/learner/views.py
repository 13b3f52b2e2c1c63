"""What a state says, as plain values for people and programs that read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from .basis import Array
from .calibration import Cells, metrics, report
from .coefficients import Coefficients, CoefficientTable
from .counters import Counters
from .pair_state import PairState
from .standard_errors import Evidence, corrected
from .state_codec import Learnt, decode_learnt
from .variance_choice import expected_variance


def pair_view(body: bytes | None, counters: bytes | None, in_force: bytes | None = None) -> dict[str, Any]:
    """A pair at a glance: workloads with labels and quality, the pair's own parameters, and the learner's counters.

    Args:
        body: the state's bytes, None for a pair that nobody has learnt yet.
        counters: the counters' bytes.
        in_force: the served table's bytes, by which quality is judged; the learner's own when left out.

    Raises:
        Refusal: for bytes that are not a state.
    """
    counted = json.loads(Counters.decode(counters).encode())
    if body is None:
        return {
            "workloads": [],
            "pair_effects": None,
            "fit_status": None,
            "labels": 0,
            "counters": counted,
            "carried": None,
            "influence": [],
        }
    learnt = decode_learnt(body)
    state, h = learnt.state, learnt.state.hierarchy
    served = _served(learnt, in_force)
    return {
        "workloads": [_glance(state, index, served) for index in range(len(state.keys))],
        "pair_effects": {
            "slopes": h.slopes.tolist(),
            "intercepts": h.intercepts.tolist(),
            "slope_sd": (h.slope_variance**0.5).tolist(),
            "level_sd": h.level_variance**0.5,
            "intercept_sd": h.intercept_variance**0.5,
        },
        "fit_status": state.status.value,
        "labels": int(state.labels.sum()),
        "counters": counted,
        "carried": learnt.carried or None,
        "influence": _influence(state),
    }


def _influence(state: PairState) -> list[dict[str, Any]]:
    """Each recent engine's labels that count, and those that were set aside because they contradicted the others."""
    known = state.influence
    counted = known.records[:, :, 0].sum(axis=1)
    return [
        {"engine": name, "labels": float(counted[i]), "set_aside": int(known.aside[i])}
        for i, name in sorted(enumerate(known.engines), key=lambda item: item[1])
    ]


def workload_view(body: bytes, key: str, in_force: bytes | None = None) -> dict[str, Any] | None:
    """One workload: what is served, what is learnt with its standard errors, and how well the served row is calibrated.

    `in_force` is the served table's bytes, which an override may have made another than the learner's own.
    Returns None for a workload that the state does not hold.

    Raises:
        Refusal: for bytes that are not a state.
    """
    learnt = decode_learnt(body)
    state = learnt.state
    if key not in state.keys:
        return None
    index = state.keys.index(key)
    table = _served(learnt, in_force)
    served = table.row(key)
    a = state.arrays
    slope_errors, intercept_errors = _errors(state, index)
    return {
        "workload": key,
        "version": table.version,
        "coefficients": served.to_dict(),
        "learnt": state.row(index).to_dict(),
        "standard_errors": {
            "slopes": slope_errors.tolist(),
            "intercepts": intercept_errors.tolist(),
        },
        "labels": int(state.labels[index]),
        "memory_labels": float(a["memory"][index]),
        "event_time_ms": int(state.event_ms[index]) or None,
        "held_back": learnt.held.get(key),
        "on_trial": learnt.probation.trials[key].row.to_dict() if key in learnt.probation.trials else None,
        "drift_alarms": int(state.alarms[index]),
        "drift_time_ms": int(state.alarm_ms[index]) or None,
        "calibration": _calibration(state, index, served),
    }


def _served(learnt: Learnt, in_force: bytes | None) -> CoefficientTable:
    table = learnt.served if in_force is None else CoefficientTable.from_json(in_force)
    # Another shape belongs to a store that was put together by hand; nothing could be judged by it.
    fits = (table.k, table.knots) == (learnt.state.k, learnt.state.knots)
    return table if fits else learnt.served


def _errors(state: PairState, index: int) -> tuple[Array, Array]:
    """Standard errors of the learnt row, [F] and [K], with its information taken for what it is worth."""
    a = state.arrays
    row = replace(state.row(index), request_variance=float(expected_variance(a["loss"])[index]))
    evidence = Evidence.of(a["n"], a["c"], index, a["acceptance"][index], row, state.basis)
    return corrected(a["slope_errors"][index], a["intercept_errors"][index], state.hierarchy, evidence)


def _calibration(state: PairState, index: int, row: Coefficients) -> dict[str, Any]:
    return report(state.arrays["acceptance"][index], state.arrays["survival"][index], row, state.basis)


def _glance(state: PairState, index: int, served: CoefficientTable) -> dict[str, Any]:
    key = state.keys[index]
    cells = Cells.of(state.arrays["acceptance"][index], served.row(key), state.basis)
    n, y = float(state.arrays["n"][index].sum()), float(state.arrays["y"][index].sum())
    return {
        "workload": key,
        "labels": int(state.labels[index]),
        "event_time_ms": int(state.event_ms[index]) or None,
        "accepted": y / n if n > 0.0 else None,
        **metrics(cells),
    }
