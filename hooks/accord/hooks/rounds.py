"""When a round ends: a pure function of how many decode steps were made, hence equal on every rank."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from accord.learner.errors import InvalidValue

DEFAULT_LENGTHS = (10, 20, 40, 100)
MAX_LENGTH = 100_000


class RoundSchedule:
    """Short rounds first, so that a new engine teaches and learns early; the last length then repeats.

    Args:
        lengths: decode steps of the first rounds, each from 1 to 100,000.

    Raises:
        InvalidValue: when a length is not such a number, or there is none.

    >>> schedule = RoundSchedule((2, 3))
    >>> [step for step in range(1, 12) if schedule.closes(step)]
    [2, 5, 8, 11]
    """

    def __init__(self, lengths: Sequence[int] = DEFAULT_LENGTHS) -> None:
        if not lengths:
            raise InvalidValue("round_steps", list(lengths), "must name at least one length")
        for length in lengths:
            if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MAX_LENGTH:
                raise InvalidValue("round_steps", list(lengths), f"each must be a whole number from 1 to {MAX_LENGTH}")
        self.lengths = tuple(lengths)
        self._ends = list(itertools.accumulate(lengths))

    def closes(self, step: int) -> bool:
        """Whether a round ends with decode step `step`, the first being 1."""
        beyond = step - self._ends[-1]
        if beyond > 0:
            return beyond % self.lengths[-1] == 0
        place = bisect.bisect_left(self._ends, step)
        return step > 0 and self._ends[place] == step

    def rounds(self, steps: int) -> int:
        """How many rounds `steps` decode steps complete."""
        beyond = steps - self._ends[-1]
        if beyond >= 0:
            return len(self._ends) + beyond // self.lengths[-1]
        return bisect.bisect_right(self._ends, steps)
