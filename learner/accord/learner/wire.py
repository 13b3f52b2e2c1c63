"""The bytes of a `RoundSummary`, and everything that is checked before one is believed."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .basis import Array, SplineBasis
from .bounds import whole
from .coefficients import MAX_WORKLOADS
from .errors import InvalidValue, Reason, Refusal
from .moments import Moments
from .packing import Packed, pack, unpack
from .pair import check_k, check_pair_id
from .plausible import Sums, check_sketch, check_sums, most_labels
from .sketch import BINS, CHANNELS, SURVIVAL_BINS, Sketch
from .summary import RoundSummary
from .workload import WorkloadKey

MAGIC = b"ACR1"
MAX_WIRE_BYTES = 4 << 20
MAX_RAW_BYTES = 48 << 20
_PLAIN, _DEFLATED = b"\x00", b"\x01"
TOO_LONG = b"\x02"
"""Stands, with how long it is, for a payload that is not worth reading."""
_BOOT = re.compile(r"[0-9a-f]{16}")
_ENGINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}")


def check_engine(text: object) -> str:
    """An engine name: 1 to 128 of letters, digits and . _ / : -, or InvalidValue."""
    if not isinstance(text, str) or not _ENGINE.fullmatch(text):
        raise InvalidValue("engine", text, "must be 1 to 128 of letters, digits and . _ / : -")
    return text


def encode(summary: RoundSummary) -> bytes:
    """Bytes of a summary; equal summaries give equal bytes. Sketches are counts, so they deflate well."""
    header = {
        name: getattr(summary, name)
        for name in ("pair", "engine", "boot", "first_seq", "last_seq", "version", "steps", "k", "knots", "workloads")
    }
    arrays: Packed = {"slopes": summary.slopes, "intercepts": summary.intercepts, **summary.moments.arrays()}
    if summary.sketch is None:
        return _PLAIN + pack(MAGIC, header, arrays)
    # float32 keeps counts exact up to 2^24 and halves what is the bulk of a summary
    arrays["acceptance"] = summary.sketch.acceptance.astype(np.float32)
    arrays["survival"] = summary.sketch.survival.astype(np.float32)
    return _DEFLATED + zlib.compress(pack(MAGIC, header, arrays), level=1)


@dataclass(frozen=True)
class Expected:
    """What the receiver knows of the pair that a summary must belong to."""

    pair: str
    k: int
    knots: tuple[float, ...]


def decode(data: bytes, expected: Expected | None = None) -> RoundSummary:
    """Decodes and validates a summary; nothing larger than its size class is ever allocated.

    Raises:
        Refusal: whose reason is size, schema, shape, not_finite, out_of_bounds, inconsistent, wrong_pair or knots.
    """
    meta, arrays = unpack(MAGIC, inflate(data), max_bytes=MAX_RAW_BYTES)
    summary = _build(meta, arrays)
    if expected is not None:
        if summary.pair != expected.pair:
            raise Refusal(Reason.WRONG_PAIR, f"evidence of {summary.pair} in the stream of {expected.pair}")
        if summary.k != expected.k:
            raise Refusal(Reason.SHAPE, f"K = {summary.k}, the pair has K = {expected.k}")
        if summary.knots != expected.knots:
            raise Refusal(Reason.KNOTS, f"knots {summary.knots}, the pair has {expected.knots}")
    check(summary)
    return summary


def inflate(data: bytes) -> bytes:
    """The packed bytes of a summary.

    Raises:
        Refusal: schema or size.
    """
    if data[:1] == TOO_LONG and len(data) <= 20 and data[1:].isdigit():
        raise Refusal(Reason.SIZE, f"{data[1:].decode('ascii')} bytes; at most {MAX_WIRE_BYTES}")
    if len(data) > MAX_WIRE_BYTES:
        raise Refusal(Reason.SIZE, f"{len(data)} bytes; at most {MAX_WIRE_BYTES}")
    if data[:1] == _PLAIN:
        return data[1:]
    if data[:1] != _DEFLATED:
        raise Refusal(Reason.SCHEMA, f"unknown encoding {data[:1]!r}")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data[1:], MAX_RAW_BYTES)
    except zlib.error as error:
        raise Refusal(Reason.SCHEMA, f"cannot be inflated: {error}") from None
    if stream.unconsumed_tail or not stream.eof or stream.unused_data:
        raise Refusal(Reason.SIZE, "inflates to more than it may, or not to its end")
    return raw


def _build(meta: dict[str, Any], arrays: Packed) -> RoundSummary:
    workloads, knots = meta.get("workloads"), meta.get("knots")
    if not isinstance(workloads, list) or not isinstance(knots, list):
        raise Refusal(Reason.SCHEMA, "workloads and knots must be lists")
    if len(workloads) > MAX_WORKLOADS:
        raise Refusal(Reason.WORKLOADS, f"{len(workloads)} workloads; at most {MAX_WORKLOADS}")
    try:
        keys = tuple(str(WorkloadKey.parse(key)) for key in workloads)
        basis = SplineBasis(tuple(_number("knots", t) for t in knots))
        k = check_k(meta.get("k"))
        fields: dict[str, Any] = {"pair": check_pair_id(meta.get("pair")), "engine": check_engine(meta.get("engine"))}
        fields |= {name: whole(name, meta.get(name)) for name in ("first_seq", "last_seq", "version", "steps")}
        boot = meta.get("boot")
        if not isinstance(boot, str) or not _BOOT.fullmatch(boot):
            raise InvalidValue("boot", boot, "must be 16 hex digits")
    except InvalidValue as error:
        raise Refusal(error.reason, str(error)) from None
    if len(set(keys)) != len(keys):
        raise Refusal(Reason.SCHEMA, "a workload is named twice")
    if not 1 <= fields["first_seq"] <= fields["last_seq"]:
        raise Refusal(Reason.OUT_OF_BOUNDS, f"rounds {fields['first_seq']} to {fields['last_seq']}")
    shapes = {"slopes": (len(keys), basis.size), "intercepts": (len(keys), k), **Moments.shapes(len(keys), k, basis)}
    optional = {"acceptance": (len(keys), k, BINS, CHANNELS), "survival": (len(keys), k, SURVIVAL_BINS, CHANNELS)}
    has_sketch = "acceptance" in arrays or "survival" in arrays
    found = _floats(arrays, shapes | optional if has_sketch else shapes)
    sketch = Sketch(found.pop("acceptance"), found.pop("survival")) if has_sketch else None
    slopes, intercepts = found.pop("slopes"), found.pop("intercepts")
    return RoundSummary(
        **fields,
        boot=boot,
        k=k,
        knots=basis.knots,
        workloads=keys,
        slopes=slopes,
        intercepts=intercepts,
        moments=Moments(**found),
        sketch=sketch,
    )


def _floats(arrays: Packed, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    if set(arrays) != set(shapes):
        raise Refusal(Reason.SHAPE, f"arrays {sorted(arrays)}, expected {sorted(shapes)}")
    found: dict[str, Array] = {}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise Refusal(Reason.SHAPE, f"{name} has shape {arrays[name].shape}, expected {shape}")
        found[name] = arrays[name].astype(np.float64)
        if not np.all(np.isfinite(found[name])):
            raise Refusal(Reason.NOT_FINITE, f"{name} holds NaN or infinity")
    return found


def check(summary: RoundSummary) -> None:
    """Refuses sums that no set of labels can leave behind; see `plausible`."""
    one = np.ones(len(summary.workloads))
    most = most_labels(summary.steps, summary.rounds)
    sums = Sums(summary.basis, summary.slopes, summary.intercepts, summary.moments, one * most, one * summary.rounds)
    check_sums(sums)
    if summary.sketch is not None:
        check_sketch(summary.sketch)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(name, value, "must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidValue(name, value, "must be finite", Reason.NOT_FINITE) from None
