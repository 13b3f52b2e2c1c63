"""The bytes of a `Learnt`: what a learner commits, and another continues from to the bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .basis import check_knots
from .coefficients import MAX_WORKLOADS, CoefficientTable
from .directions import COMMON
from .drift import RING
from .errors import InvalidValue, Reason, Refusal
from .hierarchy import Hierarchy
from .influence import MAX_ENGINES, UNKNOWN, Influence
from .moments import GRID
from .packing import Packed, pack, unpack
from .pair import check_k, check_pair_id
from .pair_state import COUNTS, PER_WORKLOAD, PairState
from .probation import Probation
from .refit import FitStatus
from .turns import first_turns
from .wire import check_engine
from .workload import WorkloadKey

MAGIC = b"ACS1"
MAX_STATE_BYTES = 64 << 20
MOST_LAPS = 2.0**52
"""Up to here one lap more is another number."""

LARGEST = 1e60
"""No sum of labels comes near it, and products of a few such numbers are still finite."""
_WHOLE = {*COUNTS, "drift_filled", "drift_start", *(f"engine_{name}" for name in Influence.COUNTS)}


@dataclass
class Learnt:
    """Everything that decides how a pair goes on: its state, what is served, and what is due.

    Attributes:
        state: the evidence and the last fit.
        served: the table in force; version 0 before the first publication.
        due: a material change waits for the publish interval.
        lineage: engine -> [boot, first round, last round] learnt since the last publication.
        held: workload -> why the guard keeps its served row.
        probation: candidates, and rows to return to.
        drift, aside: alarms, and engine -> workload -> what was set aside, since the last publication.
        holders: workload -> the only engine that has reported it, or "" once another has; see `room`.
        unlisted: summaries since the last publication whose engines the lineage has no room for.
        carried: where the prior of a pair that nobody had seen came from; empty when it started cold.
    """

    state: PairState
    served: CoefficientTable
    due: bool = False
    lineage: dict[str, list[Any]] = field(default_factory=dict)
    held: dict[str, dict[str, float]] = field(default_factory=dict)
    probation: Probation = field(default_factory=Probation)
    drift: list[dict[str, Any]] = field(default_factory=list)
    aside: dict[str, dict[str, Any]] = field(default_factory=dict)
    carried: dict[str, Any] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    unlisted: int = 0

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
        "engines": state.influence.engines,
        "served": learnt.served.to_json().decode(),
        "due": learnt.due,
        "lineage": dict(sorted(learnt.lineage.items())),
        "held": dict(sorted(learnt.held.items())),
        "probation": learnt.probation.to_dict(),
        "drift": learnt.drift,
        "aside": dict(sorted(learnt.aside.items())),
        "carried": learnt.carried,
        "holders": dict(sorted(learnt.holders.items())),
        "unlisted": learnt.unlisted,
    }
    arrays: Packed = dict(state.arrays)
    arrays |= {name: getattr(state, name) for name in COUNTS}
    scalars = [hierarchy.level, hierarchy.level_variance, hierarchy.intercept_variance]
    arrays |= {
        "pair_slopes": hierarchy.slopes,
        "pair_shape": hierarchy.shape,
        "pair_slope_variance": hierarchy.slope_variance,
        "pair_centre": hierarchy.centre,
        "pair_scalars": np.array(scalars),
        **state.drift.arrays(),
        **learnt.probation.arrays(state.k, state.basis.size),
        **{f"engine_{name}": getattr(state.influence, name) for name in (*Influence.COUNTS, *Influence.ARRAYS)},
    }
    # apart, so that a learner of version 0.1 can take over
    records = state.influence.records
    arrays |= {"engine_records": records[..., : 1 + COMMON], "engine_parts": records[..., 1 + COMMON :]}
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
        _watch(state, meta["engines"], arrays)
        _judged(learnt, meta, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Refusal(Reason.SCHEMA, f"state is not understood: {error!r:.200}") from None
    if (served.pair, served.k, served.knots) != (state.pair, state.k, state.knots):
        raise Refusal(Reason.WRONG_PAIR, f"state of {state.pair} with a table of {served.pair}")
    return learnt


def _fill(state: PairState, arrays: Packed) -> None:
    w, f = len(state.keys), state.basis.size
    state.arrays = {name: _array(arrays, name, state.shape(name, w)) for name in PER_WORKLOAD}
    for name in COUNTS:
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
    try:
        state.table(0)
    except InvalidValue as error:
        raise Refusal(Reason.OUT_OF_BOUNDS, f"a row of the state cannot be served: {error}") from None


def _watch(state: PairState, engines: list[str], arrays: Packed) -> None:
    """What watches the evidence: blocks of residuals, and the engines' records."""
    w, drift, influence = len(state.keys), state.drift, state.influence
    for name, array in drift.arrays().items():
        setattr(drift, name.removeprefix("drift_"), _array(arrays, name, array.shape))
    if not np.all((drift.start >= 0) & (drift.start <= drift.filled) & (drift.filled <= RING)):
        raise Refusal(Reason.OUT_OF_BOUNDS, f"a ring of blocks holds 0 to {RING}")
    influence.engines = [check_engine(engine) for engine in engines]
    e = len(influence.engines)
    if e > MAX_ENGINES or len(set(engines)) != e:
        raise Refusal(Reason.SCHEMA, f"{e} engines, at most {MAX_ENGINES} and all distinct")
    known = _upgraded(influence, e, w, arrays)
    for name in influence.COUNTS:
        setattr(influence, name, _array(known, f"engine_{name}", (e,)))
    for name in influence.ARRAYS:
        shape = (e, w, getattr(influence, name).shape[2])
        setattr(influence, name, _array(known, f"engine_{name}", shape))
    if influence.turns.min(initial=0.0) < 0.0 or influence.turns[..., 0].max(initial=0.0) > MOST_LAPS:
        raise Refusal(Reason.OUT_OF_BOUNDS, f"engines' turns are not negative, and at most {MOST_LAPS:g} laps")


def _upgraded(influence: Influence, engines: int, workloads: int, arrays: Packed) -> Packed:
    """What is known of engines, also where a learner wrote it that knew less of them."""
    shape, common = (engines, workloads), arrays["engine_records"]
    empty = {f"engine_{name}": np.zeros((*shape, getattr(influence, name).shape[2])) for name in influence.ARRAYS[1:]}
    empty["engine_books"] += UNKNOWN
    empty["engine_sketch_aside"] = np.zeros(engines, dtype=np.int64)
    empty["engine_parts"] = np.zeros((*shape, influence.directions.width - COMMON))
    empty["engine_turns"] = first_turns(arrays["engine_seen_ms"], common[..., 2])
    known = empty | arrays
    known["engine_records"] = np.concatenate([common, known["engine_parts"]], axis=2)
    return known


def _judged(learnt: Learnt, meta: dict[str, Any], arrays: Packed) -> None:
    state, probation = learnt.state, meta["probation"]
    trials, passed = (
        _array(arrays, f"probation_{name}", (len(probation[name]), state.basis.size + state.k + 5))
        for name in ("trials", "passed")
    )
    learnt.probation = Probation.of(probation, trials, passed, state.basis.size)
    learnt.drift = [dict(alarm) for alarm in meta["drift"]]
    learnt.aside = {str(engine): dict(of) for engine, of in meta["aside"].items()}
    learnt.carried = dict(meta["carried"])
    # not in states of versions before 0.2
    known = set(state.keys)
    learnt.holders = {str(key): str(engine) for key, engine in meta.get("holders", {}).items() if key in known}
    learnt.unlisted = int(meta.get("unlisted", 0))


def _array(arrays: Packed, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A copy of an array that has the shape and the type that were written, and holds finite numbers."""
    found = arrays[name]
    if found.shape != shape:
        raise Refusal(Reason.SHAPE, f"state array {name} has shape {found.shape}, expected {shape}")
    if found.dtype != (np.int64 if name in _WHOLE else np.float64):
        raise Refusal(Reason.SCHEMA, f"state array {name} has type {found.dtype}")
    if not np.all(np.isfinite(found)):
        raise Refusal(Reason.NOT_FINITE, f"state array {name} holds NaN or infinity")
    if name not in _WHOLE and np.abs(found).max(initial=0.0) > LARGEST:
        raise Refusal(Reason.OUT_OF_BOUNDS, f"state array {name} holds a number beyond {LARGEST:g}")
    return found.copy()
