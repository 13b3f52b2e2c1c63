from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import many, some

from accord.learner.errors import Reason, Refusal
from accord.learner.sequences import BURST_ROUNDS, FORGET_AFTER_MS, MAX_BOOTS, ROUNDS_PER_S, Sequences

A, B = "00000000000000aa", "00000000000000bb"


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 12), st.integers(0, 3)), max_size=40))
@many
def test_no_round_is_ever_learnt_twice(offers: list[tuple[str, int, int]]) -> None:
    """Whatever is offered in whatever order, admitted ranges never touch, and gaps add up to what never came."""
    seen, learnt, missing = Sequences(), {"x": set(), "y": set(), "z": set()}, dict.fromkeys("xyz", 0)
    for engine, first, more in offers:
        rounds = set(range(first, first + more + 1))
        below = max(learnt[engine], default=0)
        if first <= below:
            with pytest.raises(Refusal) as caught:
                seen.admit(engine, A, first, first + more, 0)
            assert caught.value.reason is (Reason.DUPLICATE if first + more <= below else Reason.OVERLAP)
            continue
        missing[engine] += seen.admit(engine, A, first, first + more, 0)
        learnt[engine] |= rounds
    for engine, rounds in learnt.items():
        assert missing[engine] == max(rounds, default=0) - len(rounds)


def test_a_refused_summary_changes_nothing() -> None:
    """After a duplicate and an overlap the record is as it was."""
    seen = Sequences()
    seen.admit("e", A, 1, 5, 10)
    before = seen.encode()
    for first, last in ((1, 5), (3, 4), (5, 6), (1, 9)):
        with pytest.raises(Refusal):
            seen.admit("e", A, first, last, 99)
    assert seen.encode() == before


def test_each_boot_counts_for_itself() -> None:
    """A restarted engine begins at 1 again, and its old boot is still known."""
    seen = Sequences()
    seen.admit("e", A, 1, 9, 0)
    assert seen.admit("e", B, 1, 1, 0) == 0
    with pytest.raises(Refusal):
        seen.admit("e", A, 9, 9, 0)


def test_two_processes_under_one_name_are_noticed() -> None:
    """A boot that goes on after another of the same engine was heard is told apart from one that follows another."""
    seen = Sequences()
    heard = []
    for boot, round_ in ((A, 1), (A, 2), (B, 1), (B, 2), (A, 3), (A, 4), (B, 3)):
        heard.append(seen.in_between("e", boot))
        seen.admit("e", boot, round_, round_, 1_000)
    assert heard == [None, None, None, None, B, None, A]
    assert seen.in_between("other", B) is None


def test_numbers_do_not_run_ahead_of_the_clock() -> None:
    """A round that a boot cannot have reached since it was heard is refused, and its next round is no duplicate."""
    seen = Sequences()
    seen.admit("e", A, 5_000_000, 5_000_000, 1_000)
    most = 5_000_000 + BURST_ROUNDS + ROUNDS_PER_S // 2
    for first, last in ((5_000_001, 1 << 52), (1 << 52, 1 << 52), (most, most + 1)):
        with pytest.raises(Refusal) as caught:
            seen.admit("e", A, first, last, 1_500)
        assert caught.value.reason is Reason.OUT_OF_BOUNDS
    assert seen.admit("e", A, 5_000_001, 5_000_001, 1_500) == 0
    assert seen.admit("e", A, most, most + 1, 2_000) == most - 5_000_002


def test_the_record_is_bounded() -> None:
    """Of more boots than fit those that have been silent longest are forgotten, whatever their names."""
    seen = Sequences()
    for number in range(MAX_BOOTS + 10):
        seen.in_between(f"e{number}", A)
        seen.admit(f"e{number}", A, 1, 1, number)
    seen.admit("e3", A, 2, 2, MAX_BOOTS + 10)
    seen.forget(MAX_BOOTS + 10, MAX_BOOTS + 10)
    assert len(seen.last) == MAX_BOOTS
    assert ("e3", A) in seen.last
    assert ("e10", A) not in seen.last
    assert len(seen.newest) <= MAX_BOOTS


def test_silent_boots_are_forgotten_after_a_day() -> None:
    """A boot is dropped when it has been silent for more than a day of stream time in which others were heard."""
    seen = Sequences()
    seen.admit("e", A, 1, 1, 1_000)
    seen.forget(1_000 + FORGET_AFTER_MS, FORGET_AFTER_MS)
    assert seen.last
    seen.forget(1_001 + FORGET_AFTER_MS, 1_000 + FORGET_AFTER_MS)
    assert not seen.last


def test_a_day_without_anybody_says_nothing_of_anyone() -> None:
    """When the clock jumps by more than a day no boot is forgotten: its next round would count as thousands missing."""
    seen = Sequences()
    for boot in (A, B):
        seen.admit("e", boot, 1, 5_000, 1_000)
    later = 1_001 + 3 * FORGET_AFTER_MS
    seen.admit("e", A, 5_001, 5_001, later)
    seen.forget(later, 1_000)
    assert seen.admit("e", B, 5_001, 5_001, later + 250) == 0


@given(
    st.dictionaries(
        st.tuples(st.text(max_size=5), st.text(max_size=5)), st.tuples(st.integers(0), st.integers(0)), max_size=5
    )
)
@some
def test_a_record_survives_its_bytes(last: dict[tuple[str, str], tuple[int, int]]) -> None:
    """Encoding is canonical, whatever the order of arrival, and decoding inverts it."""
    record = Sequences({key: list(values) for key, values in last.items()})
    again = Sequences.decode(record.encode())
    assert again.last == record.last
    assert Sequences(dict(reversed(list(record.last.items())))).encode() == record.encode()


@pytest.mark.parametrize("data", [None, b""])
def test_nothing_stored_is_an_empty_record(data: bytes | None) -> None:
    """A pair that was never learnt has no sequences."""
    assert Sequences.decode(data).last == {}


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"3",
        b"[3]",
        b"[[1,2,3]]",
        b'[["e","b",1.5,0]]',
        b'[["e",5,1,0]]',
        b'[["e","b",-1,0]]',
        b'[["e","b",true,0]]',
    ],
)
def test_damaged_records_are_refused(data: bytes) -> None:
    """Bytes that are no record raise a refusal."""
    with pytest.raises(Refusal):
        Sequences.decode(data)


@given(st.binary(max_size=40))
@many
def test_random_bytes_only_raise_refusals(data: bytes) -> None:
    """Whatever is stored, the outcome is a record or a refusal."""
    with contextlib.suppress(Refusal):
        Sequences.decode(data)
