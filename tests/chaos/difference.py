"""Where two states part: for whoever has to find out why they are not the same bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from accord.learner.packing import Packed, unpack
from accord.learner.state_codec import MAGIC, MAX_STATE_BYTES

MOST = 6
"""Fields that are named; the rest is counted."""


def differences(stored: bytes | None, fresh: bytes) -> str:
    """The fields of two encoded states that differ, in the order in which they are written, and by how much.

    Args:
        stored: what a learner committed, None when it never did.
        fresh: what it is compared with.

    >>> differences(None, b"")
    'nothing is stored'
    """
    if stored is None:
        return "nothing is stored"
    (meta, arrays), (other, others) = (unpack(MAGIC, body, max_bytes=MAX_STATE_BYTES) for body in (stored, fresh))
    found = _in_meta("", meta, other) + _in_arrays(arrays, others)
    more = [f"{len(found) - MOST} more"] if len(found) > MOST else []
    return "; ".join(found[:MOST] + more) or "the same values in other bytes"


def _in_meta(path: str, ours: Any, theirs: Any) -> list[str]:
    if ours == theirs:
        return []
    if path == "served":
        ours, theirs = json.loads(ours), json.loads(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            found += _in_meta(f"{path}.{name}".lstrip("."), ours.get(name), theirs.get(name))
        return found
    return [f"{path} {ours!r:.80} instead of {theirs!r:.80}"]


def _in_arrays(ours: Packed, theirs: Packed) -> list[str]:
    found = []
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None or one.shape != other.shape:
            shapes = " instead of ".join("none" if array is None else str(array.shape) for array in (one, other))
            found.append(f"{name} of shape {shapes}")
        elif not np.array_equal(one, other):
            place = tuple(int(index) for index in np.argwhere(one != other)[0])
            furthest = float(np.abs(one - other).max())
            found.append(f"{name}{list(place)} {one[place]} instead of {other[place]}, at most {furthest:.3g} apart")
    return found
