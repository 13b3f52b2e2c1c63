"""Many summaries decoded at once: the same result as `wire.decode` one by one, at a fraction of the time.

Most of what `decode` spends goes into a hundred small array operations. Engines of a pair write the same header but for
a few numbers, so summaries with the same rest of the header are laid side by side and checked as rows of one large
summary. Whatever is not written as `wire.encode` writes it, or is not plausible, is left to `decode`, which alone says
what is refused and why.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .basis import SplineBasis
from .coefficients import MAX_WORKLOADS
from .errors import InvalidValue, Reason, Refusal
from .moments import Moments
from .pair import check_k
from .plausible import Sums, check_sketch, check_sums, most_labels
from .sketch import BINS, CHANNELS, SURVIVAL_BINS, Sketch
from .summary import RoundSummary
from .wire import MAGIC, Expected, decode, inflate
from .workload import WorkloadKey

CHUNK_BYTES = 256 << 10
"""About how much is laid side by side: what a core's own cache holds."""

LAYOUTS = 256
"""Rests of headers that are remembered; MAX_REST bounds each."""
MAX_REST = 8 << 10

_HEAD = struct.Struct("<4sI")
_NUMBER = rb"(0|[1-9][0-9]{0,14})"
_START = re.compile(
    rb'\{"meta":\{"pair":"([a-z0-9._-]{1,128})","engine":"([A-Za-z0-9][A-Za-z0-9._/:-]{0,127})",'
    rb'"boot":"([0-9a-f]{16})","first_seq":' + _NUMBER + rb',"last_seq":' + _NUMBER + rb',"version":' + _NUMBER
    + rb',"steps":' + _NUMBER + rb","
)  # fmt: skip
_MOMENTS = ("A", "B", "c", "g0", "g1", "n", "y", "loss")

Decoded = RoundSummary | Refusal


@dataclass(frozen=True, eq=False)
class _Layout:
    """What the rest of a header says: K, knots, workloads, and where the arrays lie in the bytes behind it."""

    k: int
    basis: SplineBasis
    workloads: tuple[str, ...]
    floats: dict[str, tuple[slice, tuple[int, ...]]]
    count: int
    sketched: bool

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        cells = len(self.workloads) * self.k * CHANNELS * (BINS + SURVIVAL_BINS)
        return 8 * self.count + (4 * cells if self.sketched else 0)


@dataclass(frozen=True)
class _Claim:
    """One summary before it is believed: where it belongs, its own numbers, and its arrays' bytes."""

    place: int
    engine: str
    boot: str
    first: int
    last: int
    version: int
    steps: int
    body: memoryview

    @property
    def rounds(self) -> int:
        return self.last - self.first + 1


def decode_many(payloads: Sequence[bytes], expected: Expected) -> list[Decoded]:
    """`decode` of each, in order; a refusal stands where `decode` would raise it."""
    found: list[Decoded | None] = [None] * len(payloads)
    waiting: dict[_Layout, list[_Claim]] = {}
    for place, data in enumerate(payloads):
        layout, claim = _claimed(place, data, expected)
        if layout is None or claim is None:
            found[place] = _alone(data, expected)
            continue
        claims = waiting.setdefault(layout, [])
        claims.append(claim)
        if len(claims) * layout.bytes >= CHUNK_BYTES:
            _settle(layout, waiting.pop(layout), payloads, expected, found)
    for layout, claims in waiting.items():
        _settle(layout, claims, payloads, expected, found)
    return [item for item in found if item is not None]


def _alone(data: bytes, expected: Expected) -> Decoded:
    try:
        return decode(data, expected)
    except Refusal as refusal:
        return refusal


def _settle(
    layout: _Layout, claims: list[_Claim], payloads: Sequence[bytes], expected: Expected, found: list[Decoded | None]
) -> None:
    """Believes all of them together, or halves them until the implausible ones stand alone."""
    try:
        for claim, summary in zip(claims, _together(layout, claims, expected), strict=True):
            found[claim.place] = summary
    except Refusal:
        if len(claims) == 1:
            found[claims[0].place] = _alone(payloads[claims[0].place], expected)
            return
        half = len(claims) // 2
        for part in (claims[:half], claims[half:]):
            _settle(layout, part, payloads, expected, found)


def _together(layout: _Layout, claims: list[_Claim], expected: Expected) -> Iterator[RoundSummary]:
    w, n, cut = len(layout.workloads), len(claims), 8 * layout.count
    side = np.frombuffer(b"".join([claim.body[:cut] for claim in claims]), dtype="<f8").reshape(n, layout.count)
    if not np.all(np.isfinite(side)):
        raise Refusal(Reason.NOT_FINITE, "one of them holds NaN or infinity")
    rows = {name: np.array(side[:, at]).reshape(n * w, *shape) for name, (at, shape) in layout.floats.items()}
    slopes, intercepts = rows.pop("slopes"), rows.pop("intercepts")
    most = np.repeat([float(most_labels(claim.steps, claim.rounds)) for claim in claims], w)
    rounds = np.repeat([float(claim.rounds) for claim in claims], w)
    moments = Moments(**rows)
    check_sums(Sums(layout.basis, slopes, intercepts, moments, most, rounds))
    sketch = _sketches(layout, claims) if layout.sketched else None
    if sketch is not None:
        check_sketch(sketch)
    for i, claim in enumerate(claims):
        own = slice(i * w, (i + 1) * w)
        yield RoundSummary(
            expected.pair, claim.engine, claim.boot, claim.first, claim.last, claim.version, claim.steps,
            layout.k, layout.basis.knots, layout.workloads, slopes[own], intercepts[own],
            Moments(*[rows[name][own] for name in _MOMENTS]),
            None if sketch is None else Sketch(sketch.acceptance[own], sketch.survival[own]),
        )  # fmt: skip


def _sketches(layout: _Layout, claims: list[_Claim]) -> Sketch:
    w, n, cut = len(layout.workloads), len(claims), 8 * layout.count
    cells = np.frombuffer(b"".join([claim.body[cut:] for claim in claims]), dtype="<f4").reshape(n, -1)
    if not np.all(np.isfinite(cells)):
        raise Refusal(Reason.NOT_FINITE, "one of them holds NaN or infinity")
    middle = w * layout.k * BINS * CHANNELS
    return Sketch(
        cells[:, :middle].astype(np.float64).reshape(n * w, layout.k, BINS, CHANNELS),
        cells[:, middle:].astype(np.float64).reshape(n * w, layout.k, SURVIVAL_BINS, CHANNELS),
    )


def _claimed(place: int, data: bytes, expected: Expected) -> tuple[_Layout | None, _Claim | None]:
    """The layout and the claim of a summary that is written as `encode` writes it; None for any other."""
    try:
        raw = inflate(data)
    except Refusal:
        return None, None
    if len(raw) < _HEAD.size:
        return None, None
    magic, length = _HEAD.unpack_from(raw)
    end = _HEAD.size + length
    start = _START.match(raw, _HEAD.size, min(end, len(raw)))
    if magic != MAGIC or end > len(raw) or start is None or end - start.end() > MAX_REST:
        return None, None
    layout = _layout(raw[start.end() : end])
    pair, engine, boot, *numbers = start.groups()
    first, last, version, steps = (int(number) for number in numbers)
    if (
        layout is None
        or pair.decode() != expected.pair
        or (layout.k, layout.basis.knots) != (expected.k, expected.knots)
        or len(raw) - end != layout.bytes
        or not 1 <= first <= last
    ):
        return None, None
    return layout, _Claim(place, engine.decode(), boot.decode(), first, last, version, steps, memoryview(raw)[end:])


@lru_cache(LAYOUTS)
def _layout(rest: bytes) -> _Layout | None:
    """Reads the rest of a header, from K on; None unless it is what `encode` writes."""
    try:
        document = json.loads(b'{"meta":{' + rest)
        meta, arrays = document["meta"], document["arrays"]
        keys, k, basis = _identity(meta)
        canonical = _canonical(len(keys), k, basis, sketched="acceptance" in arrays)
        again = {"meta": {"k": k, "knots": list(basis.knots), "workloads": list(keys)}, "arrays": canonical}
        # Byte for byte, so that nothing is said twice, and nothing is said that is not looked at here.
        if json.dumps(again, separators=(",", ":")).encode() != b'{"meta":{' + rest:
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    floats, at = {}, 0
    shapes = {"slopes": (len(keys), basis.size), "intercepts": (len(keys), k), **Moments.shapes(len(keys), k, basis)}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        floats[name] = (slice(at, at + size), shape[1:])
        at += size
    return _Layout(k, basis, keys, floats, at, "acceptance" in arrays)


def _identity(meta: dict[str, Any]) -> tuple[tuple[str, ...], int, SplineBasis]:
    keys = tuple(str(WorkloadKey.parse(key)) for key in meta["workloads"])
    if not 0 < len(keys) <= MAX_WORKLOADS or len(set(keys)) != len(keys):
        raise InvalidValue("workloads", len(keys), f"1 to {MAX_WORKLOADS} different ones")
    if any(type(t) is not float for t in meta["knots"]):
        raise InvalidValue("knots", meta["knots"], "must be numbers with a point")
    return keys, check_k(meta["k"]), SplineBasis(tuple(meta["knots"]))


def _canonical(w: int, k: int, basis: SplineBasis, *, sketched: bool) -> dict[str, list[Any]]:
    shapes = {"slopes": (w, basis.size), "intercepts": (w, k), **Moments.shapes(w, k, basis)}
    layout: dict[str, list[Any]] = {name: ["f8", *shape] for name, shape in shapes.items()}
    if sketched:
        layout["acceptance"] = ["f4", w, k, BINS, CHANNELS]
        layout["survival"] = ["f4", w, k, SURVIVAL_BINS, CHANNELS]
    return layout
