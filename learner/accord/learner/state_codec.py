"""The bytes of a `Learnt`: what a learner commits, and another continues from to the bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .coefficients import CoefficientTable
from .errors import Reason, Refusal
from .hierarchy import FitStatus, Hierarchy
from .packing import Packed, pack, unpack
from .pair_state import PER_WORKLOAD, PairState

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
        state = PairState(meta["pair"], meta["k"], tuple(meta["knots"]), list(meta["keys"]))
        state.status, state.refits = FitStatus(meta["status"]), int(meta["refits"])
        served = CoefficientTable.from_json(meta["served"].encode())
        learnt = Learnt(state, served, bool(meta["due"]), dict(meta["lineage"]), dict(meta["held"]))
        _fill(state, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(Reason.SCHEMA, f"state is not understood: {error!r:.200}") from None
    return learnt


def _fill(state: PairState, arrays: Packed) -> None:
    w = len(state.keys)
    for name in PER_WORKLOAD:
        if arrays[name].shape != state.shape(name, w):
            raise Refusal(Reason.SHAPE, f"state array {name} has shape {arrays[name].shape}")
        state.arrays[name] = arrays[name].astype(np.float64)
    for name in _COUNTS:
        if arrays[name].shape != (w,):
            raise Refusal(Reason.SHAPE, f"state array {name} has shape {arrays[name].shape}")
        setattr(state, name, arrays[name].astype(np.int64))
    level, level_variance, intercept_variance = (float(v) for v in arrays["pair_scalars"])
    state.hierarchy = Hierarchy(
        arrays["pair_slopes"].astype(np.float64),
        level,
        arrays["pair_shape"].astype(np.float64),
        arrays["pair_slope_variance"].astype(np.float64),
        level_variance,
        intercept_variance,
    )
