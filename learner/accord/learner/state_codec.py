"""The bytes of a `Learnt`: what a learner commits, and another continues from to the bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .basis import check_knots
from .coefficients import MAX_WORKLOADS, CoefficientTable
from .errors import Reason, Refusal
from .hierarchy import Hierarchy
from .moments import GRID
from .packing import Packed, pack, unpack
from .pair import check_k, check_pair_id
from .pair_state import PER_WORKLOAD, PairState
from .refit import FitStatus
from .workload import WorkloadKey

MAGIC = b"ACS1"
MAX_STATE_BYTES = 64 << 20
_COUNTS = ("labels", "event_ms", "choice")


@dataclass
class Learnt:
    """Everything that decides how a pair goes on: its state, what is served, and what is due.

    Attributes:
        state: the evidence and the last fit.
        served: the table in force; version 0 before the first publication.
        due: a material change waits for the publish interval.
        lineage: engine -> [boot, first round, last round] learnt since the last publication.
        held: workload -> why the guard keeps its served row.
    """

    state: PairState
    served: CoefficientTable
    due: bool = False
    lineage: dict[str, list[Any]] = field(default_factory=dict)
    held: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def new(cls, pair: str, k: int, knots: tuple[float, ...]) -> Learnt:
        """A pair that nobody has seen."""
        return cls(PairState(pair, k, knots), CoefficientTable.cold(pair, k, knots))


def encode_learnt(learnt: Learnt) -> bytes:
    """Canonical bytes: equal content gives equal bytes."""
    state, hierarchy = learnt.state, learnt.state.hierarchy
    meta = {
        "pair": state.pair,
        "k": state.k,
        "knots": list(state.knots),
        "keys": state.keys,
        "status": state.status.value,
        "refits": state.refits,
        "served": learnt.served.to_json().decode(),
        "due": learnt.due,
        "lineage": dict(sorted(learnt.lineage.items())),
        "held": dict(sorted(learnt.held.items())),
    }
    arrays: Packed = dict(state.arrays)
    arrays |= {name: getattr(state, name) for name in _COUNTS}
    scalars = [hierarchy.level, hierarchy.level_variance, hierarchy.intercept_variance]
    arrays |= {
        "pair_slopes": hierarchy.slopes,
        "pair_shape": hierarchy.shape,
        "pair_slope_variance": hierarchy.slope_variance,
        "pair_centre": hierarchy.centre,
        "pair_scalars": np.array(scalars),
    }
    return pack(MAGIC, meta, arrays)


def decode_learnt(data: bytes) -> Learnt:
    """The inverse of `encode_learnt`.

    Raises:
        Refusal: for bytes of another format or with other shapes.
    """
    meta, arrays = unpack(MAGIC, data, max_bytes=MAX_STATE_BYTES)
    try:
        keys = [str(WorkloadKey.parse(key)) for key in meta["keys"]]
        if len(set(keys)) != len(keys) or len(keys) > MAX_WORKLOADS:
            raise Refusal(Reason.SCHEMA, f"{len(keys)} keys, at most {MAX_WORKLOADS} and all distinct")
        state = PairState(check_pair_id(meta["pair"]), check_k(meta["k"]), check_knots(list(meta["knots"])), keys)
        state.status, state.refits = FitStatus(meta["status"]), int(meta["refits"])
        served = CoefficientTable.from_json(meta["served"].encode())
        learnt = Learnt(state, served, bool(meta["due"]), dict(meta["lineage"]), dict(meta["held"]))
        _fill(state, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Refusal(Reason.SCHEMA, f"state is not understood: {error!r:.200}") from None
    if (served.pair, served.k, served.knots) != (state.pair, state.k, state.knots):
        raise Refusal(Reason.WRONG_PAIR, f"state of {state.pair} with a table of {served.pair}")
    return learnt


def _fill(state: PairState, arrays: Packed) -> None:
    w, f = len(state.keys), state.basis.size
    state.arrays = {name: _array(arrays, name, state.shape(name, w)) for name in PER_WORKLOAD}
    for name in _COUNTS:
        setattr(state, name, _array(arrays, name, (w,)).astype(np.int64))
    if not np.all((state.choice >= 0) & (state.choice < GRID)):
        raise Refusal(Reason.OUT_OF_BOUNDS, "state array choice names no variance of the grid")
    level, level_variance, intercept_variance = _array(arrays, "pair_scalars", (3,)).tolist()
    slopes, shape = _array(arrays, "pair_slopes", (f,)), _array(arrays, "pair_shape", (state.k,))
    slope_variance = _array(arrays, "pair_slope_variance", (f,))
    if not min(level_variance, intercept_variance, slope_variance.min()) > 0.0:
        raise Refusal(Reason.OUT_OF_BOUNDS, "a variance of the state is not positive")
    centre = _array(arrays, "pair_centre", (f + 1 + state.k,))
    state.hierarchy = Hierarchy(slopes, level, shape, slope_variance, centre, level_variance, intercept_variance)


def _array(arrays: Packed, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A copy of an array that has the shape and the type that were written, and holds finite numbers."""
    found = arrays[name]
    if found.shape != shape:
        raise Refusal(Reason.SHAPE, f"state array {name} has shape {found.shape}, expected {shape}")
    if found.dtype != (np.int64 if name in _COUNTS else np.float64):
        raise Refusal(Reason.SCHEMA, f"state array {name} has type {found.dtype}")
    if not np.all(np.isfinite(found)):
        raise Refusal(Reason.NOT_FINITE, f"state array {name} holds NaN or infinity")
    return found.copy()
