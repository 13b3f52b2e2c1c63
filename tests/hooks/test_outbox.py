"""The outbox: bounded, contiguous, complete."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hooks.harness import IDENTITY, Clock, parts

from accord.hooks.outbox import Outbox
from accord.learner.errors import InvalidValue
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode


def balanced(outbox: Outbox) -> bool:
    """Whether everything put is sent, lost or queued."""
    status = outbox.status()
    return all(
        status["put"][unit] == sum(status[name][unit] for name in ("sent", "lost", "queued"))
        for unit in ("rounds", "labels")
    )


def drained(outbox: Outbox) -> list[RoundSummary]:
    """Takes and acknowledges everything."""
    found = []
    while (head := outbox.take()) is not None:
        found.append(head)
        outbox.ack()
    return found


def test_numbers_start_at_one_and_have_no_gaps() -> None:
    """Rounds are numbered in the order they were put, from 1."""
    outbox = Outbox(IDENTITY, 8)
    stamped = [outbox.put(parts(seed)) for seed in range(3)]
    assert [(s.first_seq, s.last_seq) for s in stamped if s is not None] == [(1, 1), (2, 2), (3, 3)]
    assert [s.first_seq for s in drained(outbox)] == [1, 2, 3]


def test_newest_merge_beyond_the_limit() -> None:
    """However many rounds wait, the queue holds at most its limit, and the merged tail holds their exact totals."""
    outbox = Outbox(IDENTITY, 4)
    rounds = [parts(seed, sketch=seed % 5 == 0) for seed in range(50)]
    for item in rounds:
        outbox.put(item)
        assert len(outbox) <= 4
    assert balanced(outbox)
    assert outbox.status()["merged"]["rounds"] == 46
    summaries = drained(outbox)
    assert [(s.first_seq, s.last_seq) for s in summaries] == [(1, 1), (2, 2), (3, 3), (4, 50)]
    for name in ("n", "y", "c", "A", "loss"):
        total = sum(getattr(item.moments, name).sum() for item in rounds)
        assert sum(getattr(s.moments, name).sum() for s in summaries) == pytest.approx(total)
    sketched = sum(item.sketch.acceptance[..., 0].sum() for item in rounds if item.sketch is not None)
    assert sum(s.sketch.acceptance[..., 0].sum() for s in summaries if s.sketch is not None) == sketched


def test_memory_is_bounded() -> None:
    """A long outage adds rounds to one summary: its bytes do not grow with their number."""
    outbox = Outbox(IDENTITY, 2)
    for seed in range(20):
        outbox.put(parts(seed))
    size = len(encode(drained(outbox)[-1]))
    for seed in range(400):
        outbox.put(parts(seed))
    assert len(encode(drained(outbox)[-1])) <= size + 32


def test_taken_head_is_frozen() -> None:
    """A head that was handed to the network never changes, however much merges behind it."""
    outbox = Outbox(IDENTITY, 2)
    outbox.put(parts(0))
    head = outbox.take()
    assert head is not None
    sent = encode(head)
    for seed in range(10):
        outbox.put(parts(seed))
    again = outbox.take()
    assert again is head
    assert encode(again) == sent
    outbox.ack()
    assert [(s.first_seq, s.last_seq) for s in drained(outbox)] == [(2, 11)]


def test_not_finite_is_lost_with_a_reason() -> None:
    """A round with a NaN is counted as lost with its reason, and its number goes to the next round."""
    outbox = Outbox(IDENTITY, 4)
    outbox.put(parts(0))
    bad = parts(1)
    bad.moments.g1[0, 0] = np.nan
    assert outbox.put(bad) is None
    outbox.put(parts(2))
    status = outbox.status()
    assert status["lost"] == {"rounds": 1, "labels": bad.labels}
    assert status["lost_reasons"] == {"not_finite": 1}
    assert balanced(outbox)
    assert [s.first_seq for s in drained(outbox)] == [1, 2]


@pytest.mark.parametrize("bad", [None, "round", replace(parts(0), slopes=None), replace(parts(0), workloads=())])
def test_put_never_raises(bad: Any) -> None:
    """Whatever is put, the engine's thread sees a return value."""
    outbox = Outbox(IDENTITY, 4)
    assert outbox.put(bad) is None
    assert outbox.status()["lost"]["rounds"] == 1
    assert balanced(outbox)


def test_merge_that_fails_is_counted() -> None:
    """A round that cannot join the tail is counted as lost, and the tail stays as it was."""
    outbox = Outbox(IDENTITY, 2)
    for place in range(70):
        outbox.put(parts(place, workload=f"label-{place}:warm"))
    status = outbox.status()
    assert status["lost_reasons"] == {"workloads": 5}
    assert balanced(outbox)
    assert [(s.first_seq, s.last_seq, len(s.workloads)) for s in drained(outbox)] == [(1, 1, 1), (2, 65, 64)]


def test_drop_counts_the_head_as_lost() -> None:
    """A head that can never be sent leaves the queue, and its labels are counted."""
    outbox = Outbox(IDENTITY, 2)
    outbox.put(parts(0))
    outbox.put(parts(1))
    assert outbox.take() is not None
    outbox.drop("encode")
    assert outbox.status()["lost_reasons"] == {"encode": 1}
    assert balanced(outbox)
    assert [s.first_seq for s in drained(outbox)] == [2]


def test_lag_is_the_age_of_the_oldest() -> None:
    """The lag is how long the oldest unsent round has waited, 0 when nothing waits."""
    clock = Clock()
    outbox = Outbox(IDENTITY, 2, clock)
    for seed in range(5):
        outbox.put(parts(seed))
        clock.pass_by(1.0)
    assert outbox.status()["lag_s"] == 5.0
    drained(outbox)
    assert outbox.status()["lag_s"] == 0.0


def test_a_limit_of_one_is_refused() -> None:
    """A queue needs room for a frozen head and for one that grows."""
    with pytest.raises(InvalidValue, match="limit = 1"):
        Outbox(IDENTITY, 1)


def test_ack_without_take() -> None:
    """Acknowledging what was never taken is a mistake of the caller."""
    outbox = Outbox(IDENTITY, 2)
    outbox.put(parts(0))
    with pytest.raises(RuntimeError):
        outbox.ack()


ACTIONS = st.lists(st.sampled_from(["put", "put", "take", "ack", "fail", "drop"]), max_size=60)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.integers(2, 5))
def test_any_interleaving_keeps_rounds_contiguous(actions: list[str], limit: int) -> None:
    """Whatever the order of puts, takes, acknowledgements and failed sends, what leaves covers every round once."""
    outbox = Outbox(IDENTITY, limit)
    left: list[RoundSummary] = []
    head: RoundSummary | None = None
    for place, action in enumerate(actions):
        if action == "put":
            outbox.put(parts(place, requests=1 + place % 3))
        elif action in ("take", "fail"):
            taken = outbox.take()
            assert head is None or taken is head
            head = taken
        elif head is not None:
            left.append(head)
            outbox.ack() if action == "ack" else outbox.drop("test")
            head = None
        assert len(outbox) <= limit
        assert balanced(outbox)
    left += drained(outbox)
    edges = [(s.first_seq, s.last_seq) for s in left]
    assert [first for first, _ in edges] == [1, *(last + 1 for _, last in edges)][: len(edges)]
    status = outbox.status()
    assert sum(s.labels for s in left) == status["put"]["labels"] == status["sent"]["labels"] + status["lost"]["labels"]


def test_threads() -> None:
    """A thread that puts and a thread that sends leave nothing behind and send everything once."""
    outbox = Outbox(IDENTITY, 3)
    rounds = [parts(seed) for seed in range(300)]
    sent: list[RoundSummary] = []
    over = threading.Event()

    def send() -> None:
        while not over.is_set() or len(outbox):
            if (head := outbox.take()) is not None:
                sent.append(head)
                outbox.ack()

    thread = threading.Thread(target=send)
    thread.start()
    for item in rounds:
        outbox.put(item)
    over.set()
    thread.join(20)
    assert not thread.is_alive()
    assert sum(s.labels for s in sent) == sum(item.labels for item in rounds)
    assert sum(s.rounds for s in sent) == 300
    assert balanced(outbox)
