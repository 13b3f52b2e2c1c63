"""A small binary container: a JSON header and raw little-endian arrays, with every size bounded before allocation."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Reason, Refusal

_HEAD = struct.Struct("<4sI")
_TYPES: dict[str, np.dtype[Any]] = {code: np.dtype(f"<{code}") for code in ("f8", "f4", "i8", "u4")}
MAX_HEADER_BYTES = 1 << 18

Packed = dict[str, npt.NDArray[Any]]


def pack(magic: bytes, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Packs a header and named arrays; equal content gives equal bytes.

    Args:
        magic: four bytes that name the format.
        header: JSON values without NaN.
        arrays: float64, float32, int64 or uint32.
    """
    layout = {name: [_code(array.dtype), *array.shape] for name, array in arrays.items()}
    head = json.dumps({"meta": header, "arrays": layout}, separators=(",", ":"), allow_nan=False).encode()
    parts = [_HEAD.pack(magic, len(head)), head]
    for array in arrays.values():
        dtype: np.dtype[Any] = _TYPES[_code(array.dtype)]
        parts.append(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return b"".join(parts)


def unpack(magic: bytes, data: bytes, *, max_bytes: int) -> tuple[dict[str, Any], Packed]:
    """The inverse of `pack`. Arrays are read-only views of `data`, so a false claim allocates nothing.

    Raises:
        Refusal: size, schema or shape.
    """
    if len(data) > max_bytes:
        raise Refusal(Reason.SIZE, f"{len(data)} bytes; at most {max_bytes}")
    if len(data) < _HEAD.size:
        raise Refusal(Reason.SCHEMA, f"{len(data)} bytes are too few")
    found, length = _HEAD.unpack_from(data)
    if found != magic:
        raise Refusal(Reason.SCHEMA, f"format {found!r} is not {magic!r}")
    if length > MAX_HEADER_BYTES or _HEAD.size + length > len(data):
        raise Refusal(Reason.SIZE, f"a header of {length} bytes")
    try:
        document = json.loads(data[_HEAD.size : _HEAD.size + length])
        meta, layout = document["meta"], document["arrays"]
        items = [(str(name), _TYPES[spec[0]], tuple(spec[1:])) for name, spec in layout.items()]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise Refusal(Reason.SCHEMA, "the header is not understood") from None
    if not isinstance(meta, dict):
        raise Refusal(Reason.SCHEMA, "the header has no meta object")
    return meta, _views(data, _HEAD.size + length, items)


def _views(data: bytes, offset: int, items: list[tuple[str, np.dtype[Any], tuple[Any, ...]]]) -> Packed:
    arrays: Packed = {}
    for name, dtype, shape in items:
        if not all(type(n) is int and 0 <= n <= 1 << 24 for n in shape) or len(shape) > 4:
            raise Refusal(Reason.SHAPE, f"{name} has shape {str(shape)[:80]}")
        # An empty array has no bytes to hold it to, and NumPy cannot lay out one of any size either.
        if math.prod(n or 1 for n in shape) > 1 << 40:
            raise Refusal(Reason.SHAPE, f"{name} has shape {shape}")
        count = math.prod(shape)
        end = offset + count * dtype.itemsize
        if end > len(data):
            raise Refusal(Reason.SHAPE, f"{name} reaches past the end")
        arrays[name] = np.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(shape)
        offset = end
    if offset != len(data):
        raise Refusal(Reason.SHAPE, f"{len(data) - offset} bytes follow the last array")
    return arrays


def _code(dtype: np.dtype[Any]) -> str:
    return f"{dtype.kind}{dtype.itemsize}"
