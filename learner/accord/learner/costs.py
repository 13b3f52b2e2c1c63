"""What a decode step costs an engine, as that engine measured it: checked, looked up, and searched for dead spots.

vLLM's adaptive verification profiles two tables when it starts: milliseconds of a draft pass by requests, and of a
verifying pass by tokens. Both are steps where CUDA graphs pad to the next captured size, so a curve here is a list of
levels: the last size of each level, and what every size of it costs. A curve comes from a process that nobody vouches
for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .basis import Array
from .errors import InvalidValue, Reason

MAX_POINTS = 256
"""Levels of one curve; an engine of ours sends at most half as many."""
MAX_SIZE = 1 << 24
MAX_MS = 1e6

DRAFT, VERIFY = "draft_ms_by_requests", "verify_ms_by_tokens"
"""The curves of an engine's `costs`."""

TOLERANCE = 0.10
"""A size is in a dead spot when a smaller batch brings this much more per millisecond."""

PLATEAU_SIZES, PLATEAU_SHARE = 32, 0.25
"""A level is worth a word when it is that wide, absolutely and as a share of its end."""

MAX_DEAD_SPOTS = 32
"""Of one curve, at most so many are told."""


class Kind(StrEnum):
    """What is wrong with a range of sizes."""

    FALLS = "falls"
    """A larger batch would be cheaper."""
    JUMP = "jump"
    """The cost has just risen by more than the sizes behind the rise are worth."""
    PLATEAU = "plateau"
    """Every size of a wide range costs the same."""


@dataclass(frozen=True)
class DeadSpot:
    """Sizes `first` to `last` of a curve, what is wrong there, and a sentence."""

    kind: Kind
    first: int
    last: int
    message: str


@dataclass(frozen=True)
class CostCurve:
    """Milliseconds by batch size, as levels.

    Args:
        sizes: the last size of each level, strictly increasing whole numbers from 0 to 2^24.
        ms: finite, 0 to a million; as many.

    >>> CostCurve((8, 16), (3.0, 4.0)).at([1, 8, 9, 24])
    array([3., 3., 4., 5.])
    """

    sizes: tuple[int, ...]
    ms: tuple[float, ...]

    @classmethod
    def of(cls, field: str, points: Any) -> Self:
        """From a list of [size, ms].

        Raises:
            InvalidValue: naming the field, for anything else.
        """
        if not isinstance(points, list | tuple) or not 1 <= len(points) <= MAX_POINTS:
            raise InvalidValue(field, points, f"must be a list of 1 to {MAX_POINTS} points", Reason.SIZE)
        sizes: list[int] = []
        ms: list[float] = []
        for i, point in enumerate(points):
            name = f"{field}[{i}]"
            if not isinstance(point, list | tuple) or len(point) != 2:
                raise InvalidValue(name, point, "must be [size, milliseconds]", Reason.SHAPE)
            size, cost = point
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_SIZE:
                raise InvalidValue(name, point, f"the size must be a whole number from 0 to {MAX_SIZE}")
            if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0.0 <= cost <= MAX_MS:
                raise InvalidValue(name, point, f"the cost must be 0 to {MAX_MS:g} ms", Reason.OUT_OF_BOUNDS)
            if sizes and size <= sizes[-1]:
                raise InvalidValue(name, point, "sizes must increase")
            sizes.append(size)
            ms.append(float(cost))
        return cls(tuple(sizes), tuple(ms))

    def at(self, sizes: npt.ArrayLike) -> Array:
        """The cost of batches, float64. Beyond the last level it goes on with the slope of the last two, never down."""
        asked = np.asarray(sizes, dtype=np.float64)
        x, y = np.array(self.sizes, dtype=np.float64), np.array(self.ms)
        cost: Array = y[np.minimum(np.searchsorted(x, asked, side="left"), len(x) - 1)]
        if len(x) > 1:
            slope = max(y[-1] - y[-2], 0.0) / (x[-1] - x[-2])
            cost = cost + slope * np.maximum(asked - x[-1], 0.0)
        return cost

    def points(self) -> list[list[float]]:
        """As `of` takes them."""
        return [[size, ms] for size, ms in zip(self.sizes, self.ms, strict=True)]

    def dead_spots(self, unit: str) -> list[DeadSpot]:
        """Where more work is cheaper than less, or a little more work is dear, by size; the unit names what is counted.

        falls: a larger level is cheaper, so padding up to it would save. jump: some smaller batch brings at least a
        tenth more per millisecond. plateau: a level at least 32 sizes wide that doubles or nearly so; vLLM also makes
        one of measurements that fell, since its tables never fall.
        """
        found = [*self._falls(unit), *self._jumps(unit), *self._plateaus(unit)]
        return sorted(found, key=lambda spot: (spot.first, spot.kind))[:MAX_DEAD_SPOTS]

    def _falls(self, unit: str) -> list[DeadSpot]:
        found: list[DeadSpot] = []
        for i, (start, end) in enumerate(self._levels()):
            later = min(self.ms[i + 1 :], default=math.inf)
            if later < self.ms[i]:
                cheaper = self.sizes[self.ms.index(later, i + 1)]
                message = (
                    f"{_range(start, end)} {unit} cost {self.ms[i]:.4g} ms, but {cheaper:,} cost only {later:.4g} ms: "
                    "more is cheaper than less here, so the measurement or the kernels chosen there deserve a look"
                )
                found.append(DeadSpot(Kind.FALLS, start, end, message))
        return found

    def _jumps(self, unit: str) -> list[DeadSpot]:
        found: list[DeadSpot] = []
        best, best_size, best_ms = 0.0, 0, 0.0
        for (start, end), cost in zip(self._levels(), self.ms, strict=True):
            enough = math.ceil((1.0 - TOLERANCE) * best * cost) - 1
            last = min(end, enough)
            if best_size > 0 and last >= start and cost > best_ms:
                rise = cost / best_ms - 1.0
                message = (
                    f"{_range(start, last)} {unit} cost {cost:.4g} ms, {rise:.0%} more than {best_size:,} do, "
                    f"and bring less per millisecond: stay at {best_size:,} or go beyond {last:,}"
                )
                if found and found[-1].last == start - 1:
                    start = found.pop().first
                    message = (
                        f"{_range(start, last)} {unit} bring less per millisecond than {best_size:,} do: "
                        f"stay at {best_size:,} or go beyond {last:,}"
                    )
                found.append(DeadSpot(Kind.JUMP, start, last, message))
            if cost > 0.0 and end / cost > best:
                best, best_size, best_ms = end / cost, end, cost
        return found

    def _plateaus(self, unit: str) -> list[DeadSpot]:
        found: list[DeadSpot] = []
        for (start, end), cost in zip(self._levels(), self.ms, strict=True):
            width = end - start + 1
            if start > 1 and width >= max(PLATEAU_SIZES, PLATEAU_SHARE * end):
                message = (
                    f"{_range(start, end)} {unit} all cost {cost:.4g} ms: {start:,} are padded, or measured, "
                    f"as if they were {end:,}, so whatever fits up to {end:,} is free"
                )
                found.append(DeadSpot(Kind.PLATEAU, start, end, message))
        return found

    def _levels(self) -> list[tuple[int, int]]:
        starts = [min(1, self.sizes[0]), *(size + 1 for size in self.sizes[:-1])]
        return list(zip(starts, self.sizes, strict=True))


@dataclass(frozen=True)
class EngineCosts:
    """Both curves of an engine.

    Args:
        draft: a draft pass of a whole block of K, by requests.
        verify: a pass of the target model, by tokens; every level above 0.
    """

    draft: CostCurve
    verify: CostCurve

    @classmethod
    def of(cls, values: Any) -> Self:
        """From an engine's own report.

        Raises:
            InvalidValue: naming the field, for anything that an engine of ours does not write.
        """
        if not isinstance(values, Mapping):
            raise InvalidValue("costs", values, "must be an object")
        draft, verify = (CostCurve.of(f"costs.{name}", values.get(name)) for name in (DRAFT, VERIFY))
        if not min(verify.ms) > 0.0:
            raise InvalidValue(f"costs.{VERIFY}", min(verify.ms), "must be above 0 ms", Reason.OUT_OF_BOUNDS)
        return cls(draft, verify)

    def step_ms(self, k: int, batch: int, *, one_pass: bool) -> Array:
        """Milliseconds of a decode step that drafts and verifies 0 to K tokens for each of `batch` requests, [K + 1].

        A drafter that makes its block in one pass costs the same for 1 as for K; any other is taken to cost in
        proportion. Without drafts nothing is drafted.
        """
        m = np.arange(k + 1)
        drafting = self.draft.at(batch) * (np.minimum(m, 1) if one_pass else m / k)
        step: Array = drafting + self.verify.at(batch * (1 + m))
        return step


def _range(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
