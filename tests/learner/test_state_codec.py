from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, engines, few, many, some

from accord.learner.coefficients import COEFFICIENT_LIMIT, MAX_WORKLOADS
from accord.learner.errors import Reason, Refusal
from accord.learner.influence import UNKNOWN
from accord.learner.packing import pack, unpack
from accord.learner.pair_learner import PairLearner
from accord.learner.pair_state import PER_WORKLOAD
from accord.learner.sequences import Sequences
from accord.learner.state_codec import MAGIC, Learnt, decode_learnt, encode_learnt
from accord.learner.wire import encode


def learnt(seed: int = 1, rounds: int = 3) -> Learnt:
    """A pair that learnt some rounds, published, and has a change waiting."""
    engine, learner = Engine(seed, requests=20), PairLearner(Learnt.new(PAIR, 3, (0.0, 2.0)))
    for i in range(1, rounds + 1):
        learner.advance([(f"{i * 700}-0", encode(engine.round(20)))], i * 700 // 250 + 1)
    return learner.learnt


def edited(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The bytes of a real state with its JSON header changed, arrays untouched."""
    data = encode_learnt(learnt())
    (length,) = struct.unpack_from("<I", data, 4)
    document = json.loads(data[8 : 8 + length])
    change(document)
    head = json.dumps(document).encode()
    return data[:4] + struct.pack("<I", len(head)) + head + data[8 + length :]


def meta(**changes: Any) -> bytes:
    """The bytes of a real state with some header values changed."""
    return edited(lambda document: document["meta"].update(changes))


def array(name: str, value: float) -> bytes:
    """The bytes of a real state with the first number of an array changed."""
    state = learnt()
    held = getattr(state.state, name) if name in ("labels", "choice") else state.state.arrays[name]
    held.flat[0] = value
    return encode_learnt(state)


def prior(slope: float) -> bytes:
    """The bytes of a real state with the first slope of the pair's own row changed."""
    state = learnt()
    state.state.hierarchy.slopes[0] = slope
    return encode_learnt(state)


@given(engines(), st.integers(1, 3))
@some
def test_a_state_survives_its_bytes(engine: Engine, rounds: int) -> None:
    """Everything comes back to the bit: encoding what was decoded gives the same bytes."""
    learner = PairLearner(Learnt.new(PAIR, engine.k, engine.knots))
    for i in range(1, rounds + 1):
        learner.advance([(f"{i * 1_300}-0", encode(engine.round(8)))], i * 1_300 // 250 + 1)
    data = encode_learnt(learner.learnt)
    again = decode_learnt(data)
    assert encode_learnt(again) == data
    state, other = learner.learnt.state, again.state
    assert (other.keys, other.status, other.refits) == (state.keys, state.status, state.refits)
    for name in PER_WORKLOAD:
        assert other.arrays[name].tobytes() == state.arrays[name].tobytes()
        assert other.arrays[name].flags.writeable


@given(engines())
@few
def test_a_decoded_state_goes_on_like_the_original(engine: Engine) -> None:
    """Learning on from decoded bytes gives the same bytes as learning on without the detour."""
    one = PairLearner(Learnt.new(PAIR, engine.k, engine.knots))
    one.advance([("1000-0", encode(engine.round(8)))], 5)
    sequences = Sequences.decode(one.sequences.encode())
    other = PairLearner(decode_learnt(encode_learnt(one.learnt)), sequences)
    entry = ("2000-0", encode(engine.round(8)))
    first, second = ([p.table.to_json() for p in each.advance([entry], 20)] for each in (one, other))
    assert first == second
    assert encode_learnt(one.learnt) == encode_learnt(other.learnt)


def test_a_fresh_state_survives_its_bytes() -> None:
    """A pair without any workload is encoded and decoded like any other."""
    data = encode_learnt(Learnt.new(PAIR, 3, ()))
    assert encode_learnt(decode_learnt(data)) == data


def test_a_state_without_records_of_sketches_is_taken_up() -> None:
    """States written before sketches were held to rules load with nothing known of any engine's sketches."""
    header, arrays = unpack(MAGIC, encode_learnt(learnt()), max_bytes=1 << 24)
    later = ("sketch_aside", "sketch_records", "gains", "books")
    old = {name: array for name, array in arrays.items() if name.removeprefix("engine_") not in later}
    assert len(old) == len(arrays) - len(later)
    influence = decode_learnt(pack(MAGIC, header, old)).state.influence
    assert influence.sketch_aside.tolist() == [0]
    assert not influence.sketch_records.any()
    assert np.all(influence.books == UNKNOWN)


CORRUPTIONS: dict[str, tuple[bytes, Reason]] = {
    "nothing": (b"", Reason.SCHEMA),
    "another format": (b"ACR1" + encode_learnt(learnt())[4:], Reason.SCHEMA),
    "truncated": (encode_learnt(learnt())[:-8], Reason.SHAPE),
    "trailing": (encode_learnt(learnt()) + b"x", Reason.SHAPE),
    "pair missing": (edited(lambda d: d["meta"].pop("pair")), Reason.SCHEMA),
    "pair malformed": (meta(pair="../x"), Reason.SCHEMA),
    "another pair": (meta(pair="other"), Reason.WRONG_PAIR),
    "endless k": (meta(k=10**15), Reason.SCHEMA),
    "another k": (meta(k=4), Reason.SHAPE),
    "k of text": (meta(k="3"), Reason.SCHEMA),
    "knots of text": (meta(knots=["x"]), Reason.SCHEMA),
    "other knots": (meta(knots=[0.0]), Reason.SHAPE),
    "keys malformed": (meta(keys=["code:greedy", 5]), Reason.SCHEMA),
    "keys twice": (meta(keys=["code:greedy", "code:greedy"]), Reason.SCHEMA),
    "keys too many": (meta(keys=[f"w{i}:hot" for i in range(MAX_WORKLOADS + 1)]), Reason.SCHEMA),
    "a key too few": (meta(keys=["code:greedy"]), Reason.SHAPE),
    "status unknown": (meta(status="fine"), Reason.SCHEMA),
    "refits infinite": (meta(refits=float("inf")), Reason.SCHEMA),
    "served malformed": (meta(served="{}"), Reason.SCHEMA),
    "served no text": (meta(served=5), Reason.SCHEMA),
    "lineage no object": (meta(lineage=3), Reason.SCHEMA),
    "array missing": (edited(lambda d: d["arrays"].update(a=d["arrays"].pop("pair_slopes"))), Reason.SCHEMA),
    "array of another type": (edited(lambda d: d["arrays"].update(labels=["f8", 2])), Reason.SCHEMA),
    "pair slopes of another size": (edited(lambda d: d["arrays"].update(pair_slopes=["f4", 6])), Reason.SHAPE),
    "NaN in evidence": (array("A", np.nan), Reason.NOT_FINITE),
    "infinite sketch": (array("acceptance", np.inf), Reason.NOT_FINITE),
    "choice outside the grid": (array("choice", 6), Reason.OUT_OF_BOUNDS),
    "negative choice": (array("choice", -1), Reason.OUT_OF_BOUNDS),
    "a row that falls with the feature": (array("slopes", -0.5), Reason.OUT_OF_BOUNDS),
    "a row beyond its bound": (array("intercepts", 2 * COEFFICIENT_LIMIT), Reason.OUT_OF_BOUNDS),
    "a prior that falls with the feature": (prior(-0.5), Reason.OUT_OF_BOUNDS),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_has_its_reason(name: str) -> None:
    """A state that cannot be continued from is refused with the kind of fault."""
    data, reason = CORRUPTIONS[name]
    with pytest.raises(Refusal) as caught:
        decode_learnt(data)
    assert caught.value.reason is reason, caught.value


@given(st.data())
@many
def test_flipped_bits_raise_only_refusals(data: st.DataObject) -> None:
    """Any damaged state is either a state again or a refusal."""
    body = bytearray(encode_learnt(learnt(rounds=1)))
    (length,) = struct.unpack_from("<I", body, 4)
    for _ in range(data.draw(st.integers(1, 4))):
        within = data.draw(st.sampled_from([len(body), 8 + length]))
        body[data.draw(st.integers(0, within - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(Refusal):
        decode_learnt(bytes(body))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(KEYS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["pair", "k", "knots", "keys", "status", "refits", "served", "due", "lineage", "held"]


@given(st.sampled_from(FIELDS), values)
@some
def test_any_header_value_is_understood_or_refused(field: str, value: Any) -> None:
    """Whatever JSON stands in a header field, the outcome is a state or a refusal."""
    with contextlib.suppress(Refusal):
        decode_learnt(meta(**{field: value}))
