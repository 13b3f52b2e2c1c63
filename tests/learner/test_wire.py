from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, as_float32, engines, few, many, seeds, some, with_moments

from accord.learner.coefficients import MAX_WORKLOADS
from accord.learner.errors import InvalidValue, Reason, Refusal
from accord.learner.packing import unpack
from accord.learner.plausible import MAX_REQUESTS, MAX_ROUND_STEPS
from accord.learner.sketch import Sketch
from accord.learner.summary import RoundSummary
from accord.learner.wire import (
    MAX_RAW_BYTES,
    MAX_WIRE_BYTES,
    Expected,
    check,
    check_engine,
    decode,
    encode,
)

EXPECTED = Expected(PAIR, 3, (0.0, 2.0))


def sample(*, sketch: bool = False, seed: int = 1) -> RoundSummary:
    """A real summary of two workloads."""
    return Engine(seed).round(12, sketch=sketch)


def plain(header: bytes, tail: bytes = b"", length: int | None = None) -> bytes:
    """Wire bytes around any header."""
    return b"\0ACR1" + struct.pack("<I", len(header) if length is None else length) + header + tail


def edited(change: Callable[[dict[str, Any]], Any], *, sketch: bool = False) -> bytes:
    """The bytes of a real summary with its JSON header changed, arrays untouched."""
    data = encode(sample(sketch=sketch))
    raw = zlib.decompress(data[1:]) if sketch else data[1:]
    (length,) = struct.unpack_from("<I", raw, 4)
    document = json.loads(raw[8 : 8 + length])
    change(document)
    return plain(json.dumps(document).encode(), raw[8 + length :])


def meta(**changes: Any) -> bytes:
    """The bytes of a real summary with some header values changed."""
    return edited(lambda document: document["meta"].update(changes))


def moments(**changes: Callable[[np.ndarray], Any]) -> bytes:
    """The bytes of a real summary with some of its sums changed."""
    summary = sample()
    arrays = {name: array.copy() for name, array in summary.moments.arrays().items()}
    return encode(with_moments(summary, **{name: np.asarray(f(arrays[name])) for name, f in changes.items()}))


def put(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Puts a value in the first place of an array."""

    def change(array: np.ndarray) -> np.ndarray:
        array.flat[0] = value
        return array

    return change


def sketch_cell(channel: int, value: float, name: str = "acceptance") -> bytes:
    """The bytes of a real summary with one sketch cell changed."""
    summary = sample(sketch=True)
    assert summary.sketch is not None
    arrays = {"acceptance": summary.sketch.acceptance.copy(), "survival": summary.sketch.survival.copy()}
    arrays[name][0, 0, 12, channel] = value
    return encode(replace(summary, sketch=Sketch(**arrays)))


@given(engines(), st.booleans(), st.integers(1, 3))
@some
def test_a_summary_survives_its_bytes(engine: Engine, sketch: bool, count: int) -> None:
    """Sums come back to the bit, counts of sketches exactly, and equal summaries give equal bytes."""
    summary = engine.round(5, sketch=sketch)
    for _ in range(count - 1):
        summary = summary.merge(engine.round(5, sketch=sketch))
    data = encode(summary)
    again = decode(data, Expected(PAIR, engine.k, engine.knots))
    for name in ("pair", "engine", "boot", "first_seq", "last_seq", "version", "steps", "k", "knots", "workloads"):
        assert getattr(again, name) == getattr(summary, name)
    assert again.slopes.tobytes() == summary.slopes.tobytes()
    assert again.intercepts.tobytes() == summary.intercepts.tobytes()
    for name, array in summary.moments.arrays().items():
        assert again.moments.arrays()[name].tobytes() == array.tobytes()
    assert (again.sketch is None) == (summary.sketch is None)
    if again.sketch is not None and summary.sketch is not None:
        assert np.array_equal(again.sketch.acceptance[..., :2], summary.sketch.acceptance[..., :2])
        np.testing.assert_allclose(again.sketch.survival, summary.sketch.survival, rtol=1e-6)
    assert encode(again) == data == encode(summary)


@given(engines(max_k=8), st.integers(1, 30))
@many
def test_everything_the_accumulator_sums_is_admitted(engine: Engine, steps: int) -> None:
    """Real labels, at any coefficients in force, give sums that pass every check, as float64 and as float32."""
    engine.apply_random()
    summary = engine.round(steps)
    check(summary)
    check(as_float32(summary))


@given(engines(), st.integers(2, 6))
@some
def test_everything_that_was_merged_is_admitted(engine: Engine, count: int) -> None:
    """Rounds merged over changing coefficients pass every check too."""
    merged = engine.round(6)
    for _ in range(count - 1):
        engine.apply_random()
        merged = merged.merge(engine.round(6))
    check(merged)
    check(as_float32(merged))


def test_a_summary_without_workloads_is_admitted() -> None:
    """A round in which nothing was drafted has no workloads, and its number still counts."""
    empty = sample()
    empty = replace(
        empty,
        workloads=(),
        slopes=empty.slopes[:0],
        intercepts=empty.intercepts[:0],
        moments=empty.moments.take(np.zeros(0, dtype=np.intp)),
    )
    again = decode(encode(empty), EXPECTED)
    assert (again.workloads, again.labels, again.rounds) == ((), 0, 1)


CORRUPTIONS: dict[str, tuple[bytes, Reason]] = {
    "nothing": (b"", Reason.SCHEMA),
    "unknown encoding": (b"\x02" + encode(sample())[1:], Reason.SCHEMA),
    "unknown format": (b"\0XXXX" + encode(sample())[5:], Reason.SCHEMA),
    "not deflated": (b"\x01garbage", Reason.SCHEMA),
    "truncated deflate": (encode(sample(sketch=True))[:-9], Reason.SIZE),
    "bytes behind deflate": (encode(sample(sketch=True)) + b"x", Reason.SIZE),
    "too many bytes": (b"\0" * (MAX_WIRE_BYTES + 1), Reason.SIZE),
    "zip bomb": (b"\x01" + zlib.compress(bytes(MAX_RAW_BYTES + 1)), Reason.SIZE),
    "nested json": (plain(b"[" * 100_000), Reason.SCHEMA),
    "nested json in meta": (plain(b'{"meta":' + b"[" * 100_000), Reason.SCHEMA),
    "huge integer": (plain(b'{"meta":{"k":' + b"9" * 5_000 + b'},"arrays":{}}'), Reason.SCHEMA),
    "long integer": (
        plain(b'{"meta":{"workloads":[],"knots":[],"k":' + b"9" * 4_000 + b'},"arrays":{}}'),
        Reason.SCHEMA,
    ),
    "long knot": (
        plain(b'{"meta":{"workloads":[],"knots":[' + b"9" * 4_000 + b'],"k":1},"arrays":{}}'),
        Reason.NOT_FINITE,
    ),
    "claimed header": (plain(b"{}", length=1 << 31), Reason.SIZE),
    "workloads no list": (meta(workloads="code:greedy"), Reason.SCHEMA),
    "knots no list": (meta(knots=None), Reason.SCHEMA),
    "knots of text": (meta(knots=["0"]), Reason.SCHEMA),
    "knots of truth": (meta(knots=[True]), Reason.SCHEMA),
    "knots NaN": (meta(knots=[float("nan")]), Reason.SCHEMA),
    "knots falling": (meta(knots=[2.0, 0.0]), Reason.SCHEMA),
    "k of infinity": (meta(k=float("inf")), Reason.SCHEMA),
    "k zero": (meta(k=0), Reason.SCHEMA),
    "pair malformed": (meta(pair="A"), Reason.SCHEMA),
    "engine malformed": (meta(engine="a b"), Reason.SCHEMA),
    "engine too long": (meta(engine="a" * 129), Reason.SCHEMA),
    "boot malformed": (meta(boot="0" * 15), Reason.SCHEMA),
    "boot in capitals": (meta(boot="A" * 16), Reason.SCHEMA),
    "negative version": (meta(version=-1), Reason.SCHEMA),
    "fractional steps": (meta(steps=1.5), Reason.SCHEMA),
    "sequence beyond exact floats": (meta(last_seq=1 << 53), Reason.SCHEMA),
    "rounds backwards": (meta(first_seq=2, last_seq=1), Reason.OUT_OF_BOUNDS),
    "rounds from zero": (meta(first_seq=0), Reason.OUT_OF_BOUNDS),
    "duplicated workload": (meta(workloads=["code:greedy", "code:greedy"]), Reason.SCHEMA),
    "unknown class": (meta(workloads=["code:greedy", "code:lukewarm"]), Reason.SCHEMA),
    "workload of number": (meta(workloads=["code:greedy", 3]), Reason.SCHEMA),
    "many workloads": (meta(workloads=[f"w{i}:hot" for i in range(MAX_WORKLOADS + 1)]), Reason.WORKLOADS),
    "one workload too few": (meta(workloads=["code:greedy"]), Reason.SHAPE),
    "another k than its arrays": (meta(k=4), Reason.SHAPE),
    "array missing": (edited(lambda d: d["arrays"].pop("loss")), Reason.SHAPE),
    "array too large": (edited(lambda d: d["arrays"].update(A=["f8", 1 << 24, 1 << 24])), Reason.SHAPE),
    "array unknown": (edited(lambda d: d["arrays"].update(extra=["f8", 0])), Reason.SHAPE),
    "only one sketch": (edited(lambda d: d["arrays"].update(survival=["f8", 0])), Reason.SHAPE),
    "another pair": (meta(pair="other"), Reason.WRONG_PAIR),
    "another k": (encode(Engine(1, k=4).round()), Reason.SHAPE),
    "other knots": (encode(Engine(1, knots=(0.0, 3.0)).round()), Reason.KNOTS),
    "NaN in A": (moments(A=put(np.nan)), Reason.NOT_FINITE),
    "infinite loss": (moments(loss=put(np.inf)), Reason.NOT_FINITE),
    "NaN in sketch": (sketch_cell(0, np.nan), Reason.NOT_FINITE),
    "negative n": (moments(n=put(-1.0)), Reason.OUT_OF_BOUNDS),
    "fractional n": (moments(n=lambda n: n + 0.5), Reason.OUT_OF_BOUNDS),
    "endless n": (moments(n=put(1e300)), Reason.OUT_OF_BOUNDS),
    "negative c": (moments(c=put(-1e-9)), Reason.OUT_OF_BOUNDS),
    "negative loss": (moments(loss=put(-1.0)), Reason.OUT_OF_BOUNDS),
    "endless loss": (moments(loss=put(1e300)), Reason.INCONSISTENT),
    "more accepted than labels": (moments(y=lambda y: y + 1e6), Reason.INCONSISTENT),
    "c above n / 4": (moments(c=lambda c: c + 1e3), Reason.INCONSISTENT),
    "gradient above n": (moments(g1=put(1e6)), Reason.INCONSISTENT),
    "slope gradient beyond features": (moments(g0=put(-1e9)), Reason.INCONSISTENT),
    "B beyond features": (moments(B=put(1e6)), Reason.INCONSISTENT),
    "A beyond features": (moments(A=put(1e12)), Reason.INCONSISTENT),
    "A negative": (moments(A=lambda a: -a), Reason.INCONSISTENT),
    "Cauchy-Schwarz broken": (moments(A=lambda a: 0.0 * a), Reason.INCONSISTENT),
    "slopes fall": (encode(replace(sample(), slopes=sample().slopes * 0.0 - 0.1)), Reason.OUT_OF_BOUNDS),
    "slopes huge": (encode(replace(sample(), slopes=sample().slopes + 41.0)), Reason.OUT_OF_BOUNDS),
    "intercepts huge": (encode(replace(sample(), intercepts=sample().intercepts - 41.0)), Reason.OUT_OF_BOUNDS),
    "negative sketch count": (sketch_cell(0, -1.0), Reason.OUT_OF_BOUNDS),
    "negative sketch sum": (sketch_cell(1, -1e-3), Reason.OUT_OF_BOUNDS),
    "sketch accepted above labels": (sketch_cell(1, 1e6), Reason.INCONSISTENT),
    "sketch feature out of range": (sketch_cell(2, -1e6), Reason.INCONSISTENT),
    "survived above positions": (sketch_cell(2, 1e6, "survival"), Reason.INCONSISTENT),
    "negative survived": (sketch_cell(2, -5e-5, "survival"), Reason.OUT_OF_BOUNDS),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_has_its_reason(name: str) -> None:
    """Every kind of fault is refused with its own reason, so that it can be counted."""
    data, reason = CORRUPTIONS[name]
    with pytest.raises(Refusal) as caught:
        decode(data, EXPECTED)
    assert caught.value.reason is reason, caught.value


def test_every_reason_of_the_contract_is_reached() -> None:
    """The corruptions above reach every reason that decoding can give."""
    sequence = {Reason.DUPLICATE, Reason.OVERLAP, Reason.STALE}
    assert {reason for _, reason in CORRUPTIONS.values()} == set(Reason) - sequence


@given(st.binary(max_size=200), st.sampled_from([b"", b"\0", b"\x01", b"\0ACR1"]))
@many
def test_random_bytes_are_refused(data: bytes, start: bytes) -> None:
    """Bytes that are no summary raise a refusal and nothing else."""
    with pytest.raises(Refusal):
        decode(start + data)


@given(st.data(), st.booleans())
@many
def test_flipped_bits_raise_only_refusals(data: st.DataObject, sketch: bool) -> None:
    """Any damaged summary is either a summary that passes every check, or a refusal."""
    body = bytearray(encode(sample(sketch=sketch)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(Refusal):
        check(decode(bytes(body)))


@given(seeds, st.floats(0.0, 1.0, exclude_max=True), st.booleans())
@some
def test_truncations_are_refused(seed: int, share: float, sketch: bool) -> None:
    """A summary cut anywhere is refused."""
    body = encode(sample(sketch=sketch, seed=seed))
    with pytest.raises(Refusal):
        decode(body[: int(share * len(body))])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(KEYS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
fields = ["pair", "engine", "boot", "first_seq", "last_seq", "version", "steps", "k", "knots", "workloads"]


@given(st.sampled_from(fields), anything)
@many
def test_any_header_value_is_understood_or_refused(field: str, value: Any) -> None:
    """Whatever JSON stands in a header field, the outcome is a summary or a refusal."""
    with contextlib.suppress(Refusal):
        decode(meta(**{field: value}))


@given(st.sampled_from(["A", "B", "n", "slopes", "acceptance", "other"]), st.lists(anything, max_size=5) | anything)
@many
def test_any_array_layout_is_understood_or_refused(name: str, spec: Any) -> None:
    """Whatever an array's entry claims, the outcome is a summary or a refusal."""
    with contextlib.suppress(Refusal):
        decode(edited(lambda document: document["arrays"].update({name: spec})))


@given(st.sampled_from(["A", "B", "c", "g0", "g1", "n", "y", "loss"]), st.floats(), st.integers(0, 500))
@many
def test_any_number_is_admitted_or_refused(name: str, value: float, place: int) -> None:
    """Whatever number stands in a sum, infinities and the largest floats included, checking it never fails or warns."""

    def change(array: np.ndarray) -> np.ndarray:
        array.flat[place % array.size] = value
        return array

    with contextlib.suppress(Refusal):
        decode(moments(**{name: change}))


BOMBS = {
    "deflated zeros": b"\x01" + zlib.compress(bytes(56 << 20), level=1),
    "deflated zeros behind a header": b"\x01" + zlib.compress(encode(sample())[1:] + bytes(56 << 20), level=1),
    "header claims exabytes": edited(lambda d: d["arrays"].update(A=["f8", 1 << 24, 1 << 24, 1 << 16])),
    "many lists": plain(b'{"meta":[' + b"[]," * 80_000 + b'[]],"arrays":{}}'),
    "many arrays": plain(b'{"meta":{},"arrays":{' + b",".join(b'"%d":["f8",0]' % i for i in range(14_000)) + b"}}"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_allocates_more_than_the_size_class(name: str) -> None:
    """Bytes that promise more than they may are refused before more than the size class is allocated."""
    tracemalloc.start()
    with pytest.raises(Refusal):
        decode(BOMBS[name])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # inflating doubles a buffer as it grows, so the old and the new one live side by side
    assert peak < 2 * MAX_RAW_BYTES + (1 << 20)


@given(seeds)
@few
def test_admitting_a_real_summary_costs_a_few_times_its_size(seed: int) -> None:
    """What decoding allocates is in proportion to what the summary holds."""
    summary = sample(sketch=True, seed=seed)
    data = encode(summary)
    assert summary.sketch is not None
    size = summary.sketch.acceptance.nbytes + summary.sketch.survival.nbytes
    tracemalloc.start()
    decode(data, EXPECTED)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * size + (1 << 17)


def test_the_largest_honest_summary_fits_the_wire() -> None:
    """64 workloads at K = 64 and 7 knots, sketches full of labels: no honest engine is cut off by the size limits."""
    rng = np.random.default_rng(0)
    knots, k, w = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), 64, MAX_WORKLOADS
    keys = tuple(f"workload-{i}:{kind}" for i in range(16) for kind in ("greedy", "cool", "warm", "hot"))
    summary = Engine(1, k=k, knots=knots, keys=keys, requests=w).round(2)
    count = rng.poisson(3.0, (w, k, 64)).astype(float)
    acceptance = np.stack(
        [count, rng.binomial(count.astype(int), 0.6), count * rng.uniform(-4, 12, count.shape)], axis=-1
    )
    count = rng.poisson(3.0, (w, k, 20)).astype(float)
    survival = np.stack([count, count * rng.random(count.shape), np.floor(count / 2)], axis=-1)
    data = encode(replace(summary, sketch=Sketch(acceptance, survival)))
    assert len(data) < MAX_WIRE_BYTES
    meta_found, arrays = unpack(b"ACR1", zlib.decompress(data[1:]), max_bytes=MAX_RAW_BYTES)
    assert len(meta_found["workloads"]) == w
    assert len(arrays) == 12
    decode(data)


@pytest.mark.parametrize("name", ["", " a", "a b", "é", "a" * 129, None, 3, "-a", "a\n"])
def test_refuses_a_malformed_engine_name(name: object) -> None:
    """An engine name is 1 to 128 plain characters."""
    with pytest.raises(InvalidValue, match="engine"):
        check_engine(name)


def test_more_labels_than_the_steps_can_give_are_refused() -> None:
    """A count beyond what the busiest engine reaches in its steps, or steps beyond what rounds can hold, is refused."""
    good = Engine(1, requests=4).round(3)
    for bad in (
        with_moments(good, n=good.moments.n + good.steps * MAX_REQUESTS),
        replace(good, steps=MAX_ROUND_STEPS * good.rounds + 1),
    ):
        with pytest.raises(Refusal) as refused:
            decode(encode(bad))
        assert refused.value.reason is Reason.OUT_OF_BOUNDS


@pytest.mark.parametrize(("name", "channel"), [("acceptance", 0), ("acceptance", 1), ("survival", 0), ("survival", 2)])
def test_sketches_hold_whole_labels(name: str, channel: int) -> None:
    """A cell with a fraction of a label, in which a feature sum could be anything for each label, is refused."""
    good = Engine(1).round(8)
    assert good.sketch is not None
    decode(encode(good))
    cells = getattr(good.sketch, name).copy()
    cells[0, 0, 0] = (1.0, 0.0, 0.0) if channel != 2 else (1.0, 0.5, 0.0)
    cells[0, 0, 0, channel] = np.float32(0.5)
    with pytest.raises(Refusal) as refused:
        decode(encode(replace(good, sketch=replace_sketch(good.sketch, name, cells))))
    assert refused.value.reason is Reason.OUT_OF_BOUNDS


def replace_sketch(sketch: Sketch, name: str, cells: np.ndarray) -> Sketch:
    """A sketch with other cells."""
    return Sketch(**{"acceptance": sketch.acceptance, "survival": sketch.survival, name: cells})
