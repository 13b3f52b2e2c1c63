"""Round boundaries and the waits between tries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.hooks.backoff import Backoff
from accord.hooks.rounds import RoundSchedule
from accord.learner.errors import InvalidValue

lengths = st.lists(st.integers(1, 20), min_size=1, max_size=5)


def test_default_schedule() -> None:
    """The first rounds of a process last 10, 20 and 40 steps, all others 100."""
    schedule = RoundSchedule()
    assert [step for step in range(400) if schedule.closes(step)] == [10, 30, 70, 170, 270, 370]


@given(lengths, st.integers(0, 200))
def test_counts_agree_with_boundaries(sizes: list[int], steps: int) -> None:
    """The number of completed rounds equals the number of boundaries passed."""
    schedule = RoundSchedule(sizes)
    assert schedule.rounds(steps) == sum(schedule.closes(step) for step in range(steps + 1))


@pytest.mark.parametrize("bad", [[], [0], [True], [-3], [10, 100_001], [1.5]])
def test_bad_lengths(bad: list[int]) -> None:
    """Lengths that are no positive whole numbers are refused by name."""
    with pytest.raises(InvalidValue, match="round_steps"):
        RoundSchedule(bad)


def test_backoff_is_jittered_and_bounded() -> None:
    """Waits spread between nothing and a bound that doubles up to its cap, and start small again after a reset."""
    backoff = Backoff(0.5, 4.0)
    waits = [[backoff.next() for _ in range(8)] for _ in range(200) if backoff.reset() is None]
    assert max(wait[0] for wait in waits) <= 0.5
    assert max(max(wait) for wait in waits) <= 4.0
    assert max(wait[7] for wait in waits) > 2.0
    assert min(wait[7] for wait in waits) < 1.0
