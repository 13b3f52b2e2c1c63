"""Recorded acceptance traces: one engine's life as arrays, and everything that is checked before one is believed."""

from __future__ import annotations

import importlib.resources
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..coefficients import MAX_WORKLOADS
from ..errors import InvalidValue
from ..pair import Pair
from ..workload import WorkloadKey
from .npz import read_arrays

MAX_ROWS = 1 << 24

MAX_PAIR_TEXT = 4096
_OPTIONAL = ("q_sampled", "entropy")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """One engine's verified drafts: a row for each live request of each decode step, ordered by step.

    Args:
        features: float32 [N, K], logit(q_max) of each drafted position.
        accepted: int64 [N], drafts accepted when all K are verified, 0..K.
        workload: int64 [N], index into `workloads`.
        workloads: W distinct keys `label:class`.
        request: int64 [N], request id.
        step: int64 [N], decode step, never falling; equal steps form one batch.
        pair: whose drafts these are; its k is K.
        q_sampled, entropy: float32 [N, K] or None: draft probability of the token drawn, and entropy (nats).

    Raises:
        InvalidValue: naming the array and the value.
    """

    features: Floats
    accepted: Ints
    workload: Ints
    workloads: tuple[str, ...]
    request: Ints
    step: Ints
    pair: Pair
    q_sampled: Floats | None = None
    entropy: Floats | None = None

    def __post_init__(self) -> None:
        _check_features(self.features, self.pair.k)
        rows = len(self.features)
        for name in ("accepted", "workload", "request", "step"):
            _check_shape(name, getattr(self, name), (rows,))
        _within("accepted", self.accepted, 0, self.pair.k)
        _check_workloads(self.workloads)
        _within("workload", self.workload, 0, len(self.workloads) - 1)
        _within("request", self.request, 0, (1 << 62) - 1)
        _check_order(self.step, self.request)
        for name, high in (("q_sampled", 1.0), ("entropy", np.inf)):
            if (values := getattr(self, name)) is not None:
                _check_shape(name, values, self.features.shape)
                _check_finite(name, values)
                _within(name, values, 0.0, high)

    @property
    def k(self) -> int:
        """K, the number of draft positions."""
        return self.pair.k

    @property
    def rows(self) -> int:
        """N, the number of verified draft blocks."""
        return len(self.features)

    @property
    def labelled(self) -> Mask:
        """Which positions carry a label, [N, K]: those up to and including the first rejection."""
        mask: Mask = np.arange(self.k) <= self.accepted[:, None]
        return mask

    @property
    def y(self) -> Mask:
        """The labels, [N, K]: accepted or not; meaningful where `labelled`."""
        mask: Mask = np.arange(self.k) < self.accepted[:, None]
        return mask

    @property
    def labels(self) -> int:
        """How many labels the trace holds."""
        return int(np.minimum(self.accepted + 1, self.k).sum())

    def steps(self) -> Iterator[slice]:
        """The rows of each decode step, in order."""
        if not self.rows:
            return
        edges = [0, *(np.flatnonzero(np.diff(self.step)) + 1).tolist(), self.rows]
        for start, stop in itertools.pairwise(edges):
            yield slice(start, stop)

    def take(self, rows: npt.ArrayLike) -> Trace:
        """The trace of some rows (a mask or rising indices); workload indices keep their meaning."""
        index = np.asarray(rows)
        values = {name: value[index] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **values)

    def select(self, workloads: Sequence[str]) -> Trace:
        """The trace of some workloads only, re-indexed in the order given; raises InvalidValue for an unknown key."""
        place = {key: i for i, key in enumerate(self.workloads)}
        for key in workloads:
            if key not in place:
                raise InvalidValue("workloads", key, f"the trace has {', '.join(self.workloads)}")
        renumber = np.full(len(self.workloads), -1, dtype=np.int64)
        renumber[[place[key] for key in workloads]] = np.arange(len(workloads))
        kept = self.take(renumber[self.workload] >= 0)
        return replace(kept, workload=renumber[kept.workload], workloads=tuple(workloads))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a compressed npz that `load` reads back to equal arrays."""
        extra = {name: v for name in _OPTIONAL if (v := getattr(self, name)) is not None}
        with open(path, "wb") as file:
            np.savez_compressed(
                file,
                features=self.features,
                accepted=self.accepted.astype(np.int8),
                workload=self.workload.astype(np.int16),
                workloads=np.array(self.workloads),
                request=self.request.astype(np.int32 if self.request.max(initial=0) < 1 << 31 else np.int64),
                step=self.step.astype(np.int32 if self.step.max(initial=0) < 1 << 31 else np.int64),
                pair=np.array(json.dumps(self.pair.to_dict())),
                **extra,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a trace file.

        Raises:
            InvalidValue: for anything malformed or unreadable, in one line that names the array and the value.
        """
        try:
            with open(path, "rb") as file:
                return cls.read(file)
        except OSError as error:
            raise InvalidValue("trace", os.fspath(path), error.strerror or "cannot be read") from None

    @classmethod
    def read(cls, file: IO[bytes]) -> Trace:
        """Reads a trace from an open, seekable file; raises as `load` does."""
        found = read_arrays(file, _REQUIRED, _OPTIONAL)
        values: dict[str, Any] = {
            name: _floats(name, found[name]) for name in ("features", *_OPTIONAL) if name in found
        }
        values |= {name: _ints(name, found[name]) for name in ("accepted", "workload", "request", "step")}
        return cls(workloads=_texts(found["workloads"]), pair=_pair(found["pair"]), **values)

    @classmethod
    def bundled(cls) -> Trace:
        """The trace that comes with the package: pair a of real drafts, K = 7, eight workloads, concurrency 32."""
        resource = importlib.resources.files(__package__) / "data" / "bundled.npz"
        with resource.open("rb") as file:
            return cls.read(file)


_REQUIRED = ("features", "accepted", "workload", "workloads", "request", "step", "pair")


def _floats(name: str, array: npt.NDArray[Any]) -> Floats:
    if array.dtype.kind != "f":
        raise InvalidValue(name, str(array.dtype), "must hold float32")
    with np.errstate(all="ignore"):
        values: Floats = array.astype(np.float32)
    return values


def _ints(name: str, array: npt.NDArray[Any]) -> Ints:
    if array.dtype.kind != "i":
        raise InvalidValue(name, str(array.dtype), "must hold signed integers")
    values: Ints = array.astype(np.int64)
    return values


def _texts(array: npt.NDArray[Any]) -> tuple[str, ...]:
    if array.dtype.kind != "U" or array.ndim != 1:
        raise InvalidValue("workloads", f"{array.dtype} {array.shape}", "must be a list of text")
    _check_letters("workloads", array)
    try:
        return tuple(array.tolist())
    except ValueError:
        raise InvalidValue("workloads", "?", "is not valid text") from None


def _pair(array: npt.NDArray[Any]) -> Pair:
    if array.dtype.kind != "U" or array.ndim != 0:
        raise InvalidValue("pair", f"{array.dtype} {array.shape}", "must be one text")
    _check_letters("pair", array)
    text = "?"
    try:
        text = str(array[()])
        if len(text) > MAX_PAIR_TEXT:
            raise InvalidValue("pair", text, f"at most {MAX_PAIR_TEXT} characters")
        document = json.loads(text)
    except InvalidValue:
        raise
    except (ValueError, RecursionError):
        raise InvalidValue("pair", text, "must be JSON") from None
    return Pair.from_dict(document)


def _check_letters(name: str, array: npt.NDArray[Any]) -> None:
    # NumPy makes text of any 32 bits, and Python fails later, in whatever touches it first.
    codes = np.frombuffer(array.tobytes(), dtype=np.dtype("u4").newbyteorder(array.dtype.byteorder))
    if codes.size and codes.max() > 0x10FFFF:
        raise InvalidValue(name, int(codes.max()), "is no character")


def _check_features(features: Floats, k: int) -> None:
    if features.ndim != 2 or features.shape[1] != k:
        raise InvalidValue("features", features.shape, f"must have shape [N, K] with the pair's K = {k}")
    if len(features) > MAX_ROWS:
        raise InvalidValue("features", features.shape, f"at most {MAX_ROWS} rows")
    _check_finite("features", features)


def _check_workloads(workloads: tuple[str, ...]) -> None:
    if not 1 <= len(workloads) <= MAX_WORKLOADS:
        raise InvalidValue("workloads", len(workloads), f"must be 1 to {MAX_WORKLOADS} keys")
    for key in workloads:
        WorkloadKey.parse(key)
    if len(set(workloads)) != len(workloads):
        raise InvalidValue("workloads", workloads, "a key is named twice")


def _check_order(step: Ints, request: Ints) -> None:
    _within("step", step, 0, (1 << 62) - 1)
    falls = np.flatnonzero(np.diff(step) < 0)
    if len(falls):
        row = int(falls[0]) + 1
        raise InvalidValue("step", int(step[row]), f"row {row} follows step {int(step[row - 1])}; steps must not fall")
    order = np.lexsort((request, step))
    same = (np.diff(step[order]) == 0) & (np.diff(request[order]) == 0)
    if same.any():
        row = int(order[np.flatnonzero(same)[0]])
        raise InvalidValue("request", int(request[row]), f"appears twice in step {int(step[row])}")


def _check_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidValue(name, array.shape, f"must have shape {shape}")


def _check_finite(name: str, array: npt.NDArray[Any]) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise InvalidValue(name, float(array[row, column]), f"row {row}, position {column} must be finite")


def _within(name: str, array: npt.NDArray[Any], low: float, high: float) -> None:
    outside = (array < low) | (array > high)
    if outside.any():
        where = np.argwhere(outside)[0]
        raise InvalidValue(name, array[tuple(where)].item(), f"row {int(where[0])} must lie within {low} and {high}")
