"""What is said of two states that are not the same bytes."""

from __future__ import annotations

from dataclasses import replace

from tests.learner.strategies import PAIR

from accord.learner.state_codec import Learnt, encode_learnt

from .difference import differences


def test_the_fields_that_differ_are_named() -> None:
    """A flag, a field of the served table and an element of an array are told by name, with both values."""
    one, other = (Learnt.new(PAIR, 3, (0.0, 2.0)) for _ in range(2))
    for learnt in (one, other):
        learnt.state.reserve(["code:greedy", "chat:greedy"])
    other.due = True
    other.state.arrays["n"][1, 2] = 7.0
    found = differences(encode_learnt(one), encode_learnt(other))
    assert found == "due False instead of True; n[1, 2] 0.0 instead of 7.0, at most 7 apart"
    other.due, other.state.arrays["n"][1, 2] = False, 0.0
    other.served = replace(other.served, published_ms=5)
    assert "served.published_ms 0 instead of 5" in differences(encode_learnt(one), encode_learnt(other))
