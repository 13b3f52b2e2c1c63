"""Rows of workloads and requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.hooks.slots import RequestSlots, WorkloadSlots
from accord.learner.errors import InvalidValue


def test_lowest_free_row() -> None:
    """Keys get rows in the order of their first use, and keep them."""
    slots = WorkloadSlots(10)
    assert slots.rows(["b:warm", "a:warm", "b:warm"]).tolist() == [0, 1, 0]
    assert slots.rows(["a:warm", "c:hot"]).tolist() == [1, 2]


def test_overflow_keeps_the_class() -> None:
    """A key without a row counts as other of its own class."""
    slots = WorkloadSlots(7)
    slots.rows(["a:warm"])
    rows = slots.rows(["b:warm", "b:greedy"])
    assert [slots.keys[row] for row in rows] == ["other:warm", "other:greedy"]


def test_idle_rows_are_freed_at_a_boundary_under_pressure() -> None:
    """A row that a whole round did not use goes to a key that found none, and not before."""
    slots = WorkloadSlots(8)
    slots.rows(["a:warm", "b:warm"])
    assert slots.free_idle() == []
    slots.next_round()
    assert [slots.keys[row] for row in slots.rows(["a:warm", "c:warm"])] == ["a:warm", "other:warm"]
    assert slots.idle() == slots.free_idle() == [1]
    slots.next_round()
    assert slots.rows(["c:warm"]).tolist() == [1]


def test_no_pressure_no_change() -> None:
    """Idle rows stay with their keys while nobody needs them."""
    slots = WorkloadSlots(8)
    slots.rows(["a:warm"])
    for _ in range(5):
        slots.next_round()
        assert slots.free_idle() == []
    assert slots.keys[0] == "a:warm"


def test_lifetime() -> None:
    """One process names a bounded number of keys, because a merged summary holds all of them."""
    slots = WorkloadSlots(8, lifetime=3)
    named: set[str | None] = set()
    for place in range(20):
        named |= {slots.keys[row] for row in slots.rows([f"label-{place}:warm"])}
        slots.free_idle()
        slots.next_round()
    assert "other:warm" in named
    assert len(named) == 4
    assert slots.idle() == []


@given(st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=30))
def test_deterministic_and_disjoint(steps: list[list[int]]) -> None:
    """Two ranks that see the same steps assign the same rows, and no row serves two keys in a round."""
    ranks = [WorkloadSlots(9), WorkloadSlots(9)]
    for step in steps:
        keys = [f"w{i}:cool" for i in step]
        first, second = (slots.rows(keys).tolist() for slots in ranks)
        assert first == second
        for key, row in zip(keys, first, strict=True):
            assert ranks[0].keys[row] in (key, "other:cool")
        for slots in ranks:
            slots.free_idle()
            slots.next_round()


def test_malformed_key() -> None:
    """A key that is none is refused by its value."""
    with pytest.raises(InvalidValue, match="Bad Key"):
        WorkloadSlots(8).rows(["Bad Key"])


def test_requests_are_reset_on_reuse() -> None:
    """A row is reported as new exactly when another request takes it."""
    slots = RequestSlots(2)
    assert [list(item) for item in slots.rows(["a", "b"])] == [[0, 1], [0, 1]]
    assert [list(item) for item in slots.rows(["b", "a"])] == [[1, 0], []]
    slots.free(["a", "unknown"])
    assert [list(item) for item in slots.rows(["c", "b"])] == [[0, 1], [0]]
    assert len(slots) == 2


def test_unfinished_requests_lose_their_rows() -> None:
    """The longest unseen request gives way, never one of the same step."""
    slots = RequestSlots(3)
    slots.rows(["a", "b", "c"])
    slots.rows(["a"])
    rows, fresh = slots.rows(["d", "c"])
    assert rows.tolist() == [1, 2]
    assert fresh == [1]


def test_too_many_requests() -> None:
    """A step with more requests than rows is refused as a whole."""
    slots = RequestSlots(2)
    with pytest.raises(InvalidValue, match="requests = 3"):
        slots.rows([1, 2, 3])
    assert len(slots) == 0
