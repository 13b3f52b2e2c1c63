from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, some, with_moments

from accord.learner.errors import Refusal
from accord.learner.packing import pack, unpack
from accord.learner.summary import RoundSummary
from accord.learner.wire import MAGIC, MAX_RAW_BYTES, Expected, decode, encode
from accord.learner.wire_batch import Decoded, decode_many

KNOTS = (0.0, 2.0)
EXPECTED = Expected(PAIR, 3, KNOTS)


def alone(data: bytes) -> Decoded:
    """What the plain decoder says."""
    try:
        return decode(data, EXPECTED)
    except Refusal as refusal:
        return refusal


def same(one: Decoded, other: Decoded) -> bool:
    """Whether both are equal to the bit, refusals with their words."""
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        return str(one) == str(other) and type(one) is type(other)
    return encode(one) == encode(other)


def honest(count: int) -> list[RoundSummary]:
    """Rounds with and without sketches, of engines with different workloads."""
    made = [Engine(i, name=f"host-{i}/0", keys=KEYS[: 1 + i % 2], requests=8) for i in range(4)]
    rounds = [made[i % 4].round(4) for i in range(count)]
    return [replace(one, sketch=None) if i % 3 else one for i, one in enumerate(rounds)]


POOL = honest(24)


def test_a_batch_is_what_its_parts_are() -> None:
    """A batch of honest summaries decodes to the same summaries as one by one, each with memory of its own."""
    payloads = [encode(summary) for summary in POOL]
    found = decode_many(payloads, EXPECTED)
    assert all(isinstance(one, RoundSummary) for one in found)
    assert {one.sketch is None for one in found if isinstance(one, RoundSummary)} == {True, False}
    assert all(same(one, alone(data)) for one, data in zip(found, payloads, strict=True))
    first = found[0]
    assert isinstance(first, RoundSummary)
    first.moments.A[:] = -1.0
    assert all(same(one, alone(data)) for one, data in list(zip(found, payloads, strict=True))[1:])


def rewritten(data: bytes, **meta: object) -> bytes:
    """A plain summary whose header says something else."""
    header, arrays = unpack(MAGIC, data[1:], max_bytes=MAX_RAW_BYTES)
    return b"\x00" + pack(MAGIC, header | meta, arrays)


@given(st.data())
@some
def test_one_bad_summary_spoils_no_other(data: st.DataObject) -> None:
    """Whatever stands among them, every payload of a batch gives what it gives alone, refusals word for word."""
    payloads = []
    for _ in range(data.draw(st.integers(1, 12))):
        summary = POOL[data.draw(st.integers(0, len(POOL) - 1))]
        kind = data.draw(st.sampled_from(["good", "good", "flip", "cut", "y", "nan", "curve", "steps", "header"]))
        moments = summary.moments
        if kind == "y":
            summary = with_moments(summary, y=moments.n + 5.0)
        elif kind == "nan":
            summary = with_moments(summary, g0=np.full_like(moments.g0, np.nan))
        elif kind == "curve":
            summary = with_moments(summary, A=0.0 * moments.A, B=moments.B + 2.0 * moments.c[:, :, None])
        elif kind == "steps":
            summary = replace(summary, steps=0)
        body = encode(replace(summary, sketch=None)) if kind == "header" else encode(summary)
        if kind == "header":
            wrong = {"k": 4, "pair": "other", "knots": [0], "first_seq": 0, "engine": "?", "workloads": []}
            name = data.draw(st.sampled_from(sorted(wrong)))
            body = rewritten(body, **{name: wrong[name]})
        elif kind == "cut":
            body = body[: data.draw(st.integers(0, len(body)))]
        elif kind == "flip":
            changed, place = bytearray(body), data.draw(st.integers(0, len(body) - 1))
            changed[place] ^= 1 << data.draw(st.integers(0, 7))
            body = bytes(changed)
        payloads.append(body)
    found = decode_many(payloads, EXPECTED)
    assert len(found) == len(payloads)
    for one, body in zip(found, payloads, strict=True):
        assert same(one, alone(body))


def test_a_header_that_says_a_thing_twice_is_read_as_alone() -> None:
    """A header with a name twice means the same in a batch as alone: the last one counts."""
    good = encode(replace(POOL[0], sketch=None))
    head = good[1:]
    length = int.from_bytes(head[4:8], "little")
    for name, value in ((b'"k":4,', b'"k":3,'), (b'"engine":"other/0",', b'"knots":')):
        at = head.index(value)
        longer = head[:4] + (length + len(name)).to_bytes(4, "little") + head[8:at] + name + head[at:]
        (found,) = decode_many([good[:1] + longer], EXPECTED)
        assert same(found, alone(good[:1] + longer))
        assert isinstance(found, RoundSummary)
