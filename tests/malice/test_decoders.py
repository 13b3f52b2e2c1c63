"""No input, however damaged, ends in an exception that was not declared, or allocates beyond its own size class."""

from __future__ import annotations

import contextlib
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.malice.decoders import CONSTANT_BYTES, DECODERS, dictionary

WORDS = tuple(dictionary())


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A good sample, changed in a few places; now and then anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    body = bytearray(draw(st.sampled_from(DECODERS[name].samples())))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(body)))
        kind = draw(st.sampled_from(["flip", "cut", "word", "repeat", "digits", "swap"]))
        if kind == "flip" and at < len(body):
            body[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del body[at : at + draw(st.integers(1, 40))]
        elif kind == "word":
            body[at:at] = draw(st.sampled_from(WORDS))
        elif kind == "repeat":
            body[at:at] = body[at : at + draw(st.integers(1, 64))] * draw(st.sampled_from([1, 2, 50]))
        elif kind == "digits":
            number = draw(st.sampled_from([b"-1", b"0", b"1e308", b"NaN", b"null", b"9" * 20, b'"x"', b"[]"]))
            body[at : at + 1] = number
        elif kind == "swap" and len(body) >= 16:
            numbers = np.array([draw(st.floats())]).tobytes()
            body[at : at + 8] = numbers
    return bytes(body)


@pytest.mark.parametrize("name", DECODERS)
@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_damage_ends_in_a_declared_error(name: str, data: st.DataObject) -> None:
    """Whatever is done to good bytes, reading them gives a value or one of the declared errors, and no warning."""
    body, decoder = data.draw(damaged(name)), DECODERS[name]
    with warnings.catch_warnings(), contextlib.suppress(*decoder.raises):
        warnings.simplefilter("error")
        decoder.read(body)


@pytest.mark.parametrize("name", DECODERS)
def test_allocation_stays_in_the_size_class(name: str) -> None:
    """Reading a few KB, good or damaged, never allocates more than so many times their size and a constant."""
    decoder, rng = DECODERS[name], np.random.default_rng(0)
    for sample in decoder.samples():
        for turn in range(12):
            body = bytearray(sample)
            for place in rng.integers(0, len(body), turn):
                body[place] = rng.integers(0, 256)
            tracemalloc.start()
            with contextlib.suppress(*decoder.raises):
                decoder.read(bytes(body))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < decoder.factor * len(body) + CONSTANT_BYTES
