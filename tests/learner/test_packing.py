from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.learner.strategies import many, some

from accord.learner.errors import Reason, Refusal
from accord.learner.packing import MAX_HEADER_BYTES, Packed, pack, unpack

MAGIC = b"TST1"
types = st.sampled_from(["<f8", "<f4", "<i8", "<u4"])
arrays = types.flatmap(
    lambda t: hnp.arrays(np.dtype(t), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
names = st.text(max_size=6)


def raw(head: bytes, tail: bytes = b"", length: int | None = None) -> bytes:
    """A container around any header bytes."""
    return struct.pack("<4sI", MAGIC, len(head) if length is None else length) + head + tail


def header(layout: Any, meta: Any = None) -> bytes:
    """Header bytes with any layout."""
    return json.dumps({"meta": {} if meta is None else meta, "arrays": layout}).encode()


@given(st.dictionaries(names, st.integers() | names | st.booleans()), st.dictionaries(names, arrays, max_size=4))
@some
def test_a_container_survives_its_bytes(meta: dict[str, Any], content: Packed) -> None:
    """Header and arrays come back to the bit, NaN payloads included, and packing them again gives the same bytes."""
    data = pack(MAGIC, meta, content)
    found_meta, found = unpack(MAGIC, data, max_bytes=len(data))
    assert found_meta == meta
    assert list(found) == list(content)
    for name, array in content.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert pack(MAGIC, found_meta, found) == data


def test_arrays_in_any_memory_order_give_the_same_bytes() -> None:
    """Bytes depend on the values, not on strides or byte order."""
    array = np.arange(6.0).reshape(2, 3)
    assert pack(MAGIC, {}, {"a": np.asfortranarray(array)}) == pack(MAGIC, {}, {"a": array})
    assert pack(MAGIC, {}, {"a": array.astype(">f8")}) == pack(MAGIC, {}, {"a": array})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.SCHEMA),
        (b"TST1\x00", Reason.SCHEMA),
        (b"XXXX" + raw(header({}))[4:], Reason.SCHEMA),
        (raw(b"{}"), Reason.SCHEMA),
        (raw(b"not json"), Reason.SCHEMA),
        (raw(b"[" * 50_000), Reason.SCHEMA),
        (raw(b'{"meta":{},"arrays":' + b"9" * 5_000 + b"}"), Reason.SCHEMA),
        (raw(b"\xff\xff\xff\xff"), Reason.SCHEMA),
        (raw(header([])), Reason.SCHEMA),
        (raw(header({}, meta=[])), Reason.SCHEMA),
        (raw(header({"a": []})), Reason.SCHEMA),
        (raw(header({"a": ["f2", 1]})), Reason.SCHEMA),
        (raw(header({"a": [["f8"], 1]})), Reason.SCHEMA),
        (raw(header({"a": "f8"})), Reason.SCHEMA),
        (raw(header({"a": None})), Reason.SCHEMA),
        (raw(header({}), length=1 << 20), Reason.SIZE),
        (raw(b" " * (MAX_HEADER_BYTES + 1)), Reason.SIZE),
        (raw(header({}) + b" " * 600_000, length=10), Reason.SIZE),
        (raw(header({"a": ["f8", 1]})), Reason.SHAPE),
        (raw(header({"a": ["f8", 1]}), b"12345678x"), Reason.SHAPE),
        (raw(header({"a": ["f8", -1]})), Reason.SHAPE),
        (raw(header({"a": ["f8", 1.0]}), b"12345678"), Reason.SHAPE),
        (raw(header({"a": ["f8", True]}), b"12345678"), Reason.SHAPE),
        (raw(header({"a": ["f8", 1 << 62]})), Reason.SHAPE),
        (raw(header({"a": ["f8", 1 << 24, 1 << 24, 1 << 24, 1 << 24]})), Reason.SHAPE),
        (raw(header({"a": ["f8", 0, 1 << 24, 1 << 24, 1 << 24]})), Reason.SHAPE),
        (raw(header({"a": ["f8", 1, 1, 1, 1, 1]}), b"12345678"), Reason.SHAPE),
    ],
)
def test_each_false_claim_has_its_reason(data: bytes, reason: Reason) -> None:
    """A header that claims what the bytes do not hold is refused with the kind of fault."""
    with pytest.raises(Refusal) as caught:
        unpack(MAGIC, data, max_bytes=600_000)
    assert caught.value.reason is reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values, st.binary(max_size=64))
@many
def test_any_header_is_understood_or_refused(meta: Any, layout: Any, tail: bytes) -> None:
    """Whatever JSON the header holds, NaN and infinity included, the outcome is arrays or a refusal."""
    with contextlib.suppress(Refusal):
        unpack(MAGIC, raw(header(layout, meta), tail), max_bytes=1 << 20)


@given(
    st.sampled_from(["f8", "f4"]), st.lists(st.sampled_from([0, 1, 2, 3, 1 << 12, 1 << 24, 1 << 25, -1]), max_size=6)
)
@many
def test_no_claimed_shape_allocates(code: str, shape: list[int]) -> None:
    """Sizes are believed only as far as the bytes reach: a claim of exabytes costs nothing."""
    data = raw(header({"a": [code, *shape]}), b"\0" * 48)
    tracemalloc.start()
    with contextlib.suppress(Refusal):
        unpack(MAGIC, data, max_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 18
