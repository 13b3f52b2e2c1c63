"""The recorded trace: what it accepts, how it refuses, and how it is cut."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.learner.errors import InvalidValue
from accord.learner.evaluate import npz
from accord.learner.evaluate.bundle import compact
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import DraftSampling, Method, Pair

PAIR = Pair("target", "draft", Method.EAGLE, DraftSampling.GREEDY, 3)


def arrays() -> dict[str, Any]:
    """Two steps of two requests in two workloads."""
    return {
        "features": np.linspace(-2.0, 6.0, 12, dtype=np.float32).reshape(4, 3),
        "accepted": np.array([0, 3, 1, 2], dtype=np.int8),
        "workload": np.array([0, 1, 0, 1], dtype=np.int16),
        "workloads": np.array(["chat:sampled", "code:greedy"]),
        "request": np.array([7, 9, 7, 9], dtype=np.int32),
        "step": np.array([0, 0, 1, 1], dtype=np.int32),
        "pair": np.array(json.dumps(PAIR.to_dict())),
    }


def packed(values: dict[str, Any]) -> bytes:
    """The npz of some arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **values)
    return buffer.getvalue()


def read(data: bytes) -> Trace:
    """What `Trace.read` makes of these bytes."""
    return Trace.read(io.BytesIO(data))


def refusal(data: bytes) -> str:
    """The one line that refuses these bytes."""
    with pytest.raises(InvalidValue) as caught:
        read(data)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def outcome(data: bytes) -> str:
    """The refusal of these bytes, or the rows of a valid trace; any other error escapes."""
    try:
        return str(read(data).rows)
    except InvalidValue as error:
        return str(error)


def test_a_trace_reads_back_what_was_saved(tmp_path: Path) -> None:
    """Saving and loading keeps every array, the optional ones too."""
    extra = {"q_sampled": np.full((4, 3), 0.5, np.float32), "entropy": np.full((4, 3), 1.5, np.float32)}
    trace = read(packed(arrays() | extra))
    trace.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    for name, value in vars(trace).items():
        np.testing.assert_array_equal(value, getattr(again, name))


def test_labels_end_with_the_first_rejection() -> None:
    """A position is labelled up to and including the first rejection, and nowhere else."""
    trace = read(packed(arrays()))
    assert trace.labelled.sum(axis=1).tolist() == [1, 3, 2, 3]
    assert trace.labels == 9
    assert (trace.y & trace.labelled).sum(axis=1).tolist() == [0, 3, 1, 2]


def test_steps_cover_every_row_in_order() -> None:
    """The slices of the decode steps follow each other without a gap."""
    assert list(read(packed(arrays())).steps()) == [slice(0, 2), slice(2, 4)]


def test_select_renumbers_the_workloads() -> None:
    """A selection keeps the rows of the named workloads only, indexed in the order named."""
    trace = read(packed(arrays()))
    chosen = trace.select(["code:greedy"])
    assert chosen.rows == 2
    assert chosen.workload.tolist() == [0, 0]
    assert trace.select(["code:greedy", "chat:sampled"]).workload.tolist() == [1, 0, 1, 0]
    with pytest.raises(InvalidValue, match="math:greedy"):
        trace.select(["math:greedy"])


def test_the_bundled_trace_is_real_and_small() -> None:
    """The package carries a trace of real drafts in eight workloads."""
    trace = Trace.bundled()
    assert (trace.k, trace.rows, len(trace.workloads)) == (7, 28_800, 8)
    assert trace.pair.target == "SmolLM2-135M-Instruct"


def test_compacting_drops_experiments_and_rounds_features() -> None:
    """The compact form keeps every label and moves a feature by at most one part in 2048."""
    trace = read(packed(arrays() | {"entropy": np.ones((4, 3), np.float32)}))
    small = compact(trace)
    assert small.entropy is None
    np.testing.assert_array_equal(small.accepted, trace.accepted)
    np.testing.assert_allclose(small.features, trace.features, rtol=2.0**-11)


@pytest.mark.parametrize("name", sorted(arrays()))
def test_a_missing_array_is_named(name: str) -> None:
    """Whatever required array is missing, the refusal names it."""
    assert refusal(packed({k: v for k, v in arrays().items() if k != name})).startswith(f"{name} = ")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("accepted", np.array([0, 4, 1, 2], np.int8), "accepted = 4"),
        ("accepted", np.array([0, -1, 1, 2], np.int8), "accepted = -1"),
        ("accepted", np.array([0.0, 1.0, 1.0, 2.0]), "accepted = 'float64'"),
        ("accepted", np.array([0, 1], np.int8), "accepted = (2,)"),
        ("features", np.full((4, 3), np.nan, np.float32), "features = nan"),
        ("features", np.full((4, 3), 1e300), "features = inf"),
        ("features", np.zeros((4, 2), np.float32), "features = (4, 2)"),
        ("features", np.zeros((4, 3), np.int32), "features = 'int32'"),
        ("step", np.array([0, 1, 0, 1], np.int32), "step = 0"),
        ("step", np.array([-1, 0, 1, 1], np.int32), "step = -1"),
        ("step", np.array([0, 0, 0, 1], np.int32), "request = 7"),
        ("workload", np.array([0, 2, 0, 1], np.int16), "workload = 2"),
        ("workloads", np.array(["chat", "code:greedy"]), "workload = 'chat'"),
        ("workloads", np.array(["chat:greedy", "chat:greedy"]), "workloads = "),
        ("workloads", np.array(["chat:sampled"] * 65), "workloads = 65"),
        ("workloads", np.array([1, 2]), "workloads = "),
        ("pair", np.array("{"), "pair = '{'"),
        ("pair", np.array("[1]"), "pair = [1]"),
        ("pair", np.array('{"target": "x"}'), "pair = "),
        ("pair", np.array(["a", "b"]), "pair = "),
        ("pair", np.array("[" * 4000), "pair = "),
        ("pair", np.array("9" * 5000), "pair = "),
        ("q_sampled", np.full((4, 3), 1.5, np.float32), "q_sampled = 1.5"),
        ("entropy", np.full((4, 3), -0.5, np.float32), "entropy = -0.5"),
        ("entropy", np.zeros((4, 2), np.float32), "entropy = (4, 2)"),
    ],
)
def test_a_bad_array_is_refused_by_name_and_value(name: str, value: Any, expected: str) -> None:
    """Each malformation gives one line with the array and the offending value."""
    assert refusal(packed(arrays() | {name: value})).startswith(expected)


def test_pickled_objects_are_never_loaded() -> None:
    """An array of Python objects is refused without being unpickled."""
    assert "must hold numbers or text" in refusal(packed(arrays() | {"pair": np.array([{}], dtype=object)}))


def test_a_header_that_claims_too_much_allocates_nothing() -> None:
    """A header whose shape needs more bytes than the file holds is refused before anything is read."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 3)})
    buffer = io.BytesIO(packed({k: v for k, v in arrays().items() if k != "features"}))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("features.npy", header.getvalue())
    assert refusal(buffer.getvalue()).startswith("features = (1099511627776, 3)")


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and arrays beyond the limit are refused."""
    data = packed(arrays())
    monkeypatch.setattr(npz, "MAX_ARRAY_BYTES", 16)
    assert "at most 16 bytes" in refusal(data)
    monkeypatch.setattr(npz, "MAX_FILE_BYTES", 100)
    assert "at most 100" in refusal(data)


def test_files_that_cannot_be_opened_are_one_line_too(tmp_path: Path) -> None:
    """A missing file, a folder, text and an empty file are all InvalidValue."""
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("missing.npz", "", "text.npz", "empty.npz"):
        with pytest.raises(InvalidValue, match=r"^trace = "):
            Trace.load(tmp_path / name)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutated_bytes_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    """However bytes of a file are cut, flipped or inserted, the outcome is a valid trace or InvalidValue."""
    raw = bytearray(packed(arrays()))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "word"])):
            case "flip":
                raw[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del raw[at : at + data.draw(st.integers(1, 64))]
            case "insert":
                raw[at:at] = data.draw(st.binary(min_size=1, max_size=8))
            case _:
                raw[at : at + 4] = struct.pack("<I", data.draw(st.integers(0, 2**32 - 1)))
        if not raw:
            break
    assert "\n" not in outcome(bytes(raw))


_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(np.array),
    st.lists(st.floats(width=32), max_size=5).map(lambda v: np.array(v, np.float32)),
    st.lists(st.text(max_size=8), max_size=4).map(lambda v: np.array(v, dtype="U8")),
    st.text(max_size=40).map(np.array),
    st.binary(max_size=8).map(np.array),
    st.sampled_from([np.zeros((4, 3), dtype) for dtype in ("f2", "f8", "c8", "b", "M8[s]", "V4", ">f4", ">i4", "u1")]),
    st.sampled_from([np.zeros(shape, np.int32) for shape in ((), (4,), (0,), (0, 3), (4, 3, 1), (1, 4))]),
)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from([*arrays(), "q_sampled", "entropy"]), value=_VALUES)
def test_any_array_in_any_place_is_read_or_refused_and_nothing_else(name: str, value: Any) -> None:
    """Whatever array stands under a name, the outcome is a valid trace or InvalidValue."""
    assert "\n" not in outcome(packed(arrays() | {name: value}))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", ["pair", "workloads"])
def test_text_that_is_none_is_refused(name: str, order: str) -> None:
    """32 bits that are no character are refused where they stand, and never reach Python as text."""
    values = arrays()
    wide = values[name].astype(values[name].dtype.newbyteorder(order))
    codes = np.frombuffer(wide.tobytes(), dtype=np.dtype("u4").newbyteorder(order)).copy()
    codes[3] = 0x110000
    values[name] = np.frombuffer(codes.tobytes(), dtype=wide.dtype).reshape(wide.shape)
    assert "is no character" in refusal(packed(values))
