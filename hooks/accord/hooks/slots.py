"""Which row of a fixed-size table belongs to which workload or request."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from accord.learner.coefficients import MAX_WORKLOADS
from accord.learner.errors import InvalidValue
from accord.learner.request_effect import Index
from accord.learner.workload import OTHER_LABEL, TemperatureClass, WorkloadKey

_OTHERS = tuple(str(WorkloadKey(OTHER_LABEL, kind)) for kind in TemperatureClass)

_REMEMBERED = 4 * MAX_WORKLOADS


class WorkloadSlots:
    """Rows for the workloads of one engine; the last six are kept for `other:<class>`.

    A key gets the lowest free row. Without one, its requests count as `other` of their class until a round boundary
    frees rows. All of it follows from the sequence of calls, so every rank assigns alike.

    Args:
        size: number of rows, more than six.
        lifetime: how many distinct keys one process may ever name, `other` apart: a merged summary holds all of them.

    Attributes:
        keys: the key of each row, None where free.

    >>> slots = WorkloadSlots(8)
    >>> slots.rows(["a:warm", "b:warm", "c:warm", "a:warm"]).tolist(), slots.keys[4]
    ([0, 1, 4, 0], 'other:warm')
    """

    def __init__(self, size: int = 32, lifetime: int = MAX_WORKLOADS - len(_OTHERS)) -> None:
        if not len(_OTHERS) < size <= MAX_WORKLOADS:
            raise InvalidValue("size", size, f"must be {len(_OTHERS) + 1} to {MAX_WORKLOADS}")
        self.size, self._lifetime = size, lifetime
        named = size - len(_OTHERS)
        self.keys: list[str | None] = [None] * named + list(_OTHERS)
        self._free = list(range(named))
        self._row = {key: named + i for i, key in enumerate(_OTHERS)}
        self._elsewhere: dict[str, int] = {}
        self._seen_at = [0] * size
        self._ever: set[str] = set()
        self._now = 0
        self._pressed = False

    def rows(self, keys: Sequence[str]) -> Index:
        """The row of each key [B], assigning rows to new ones.

        Raises:
            InvalidValue: for a malformed key.
        """
        found = np.fromiter((self._of(key) for key in keys), dtype=np.intp, count=len(keys))
        for row in np.unique(found).tolist():
            self._seen_at[row] = self._now
        return found

    def idle(self) -> list[int]:
        """Rows that the round did not use, if some key found none that was free."""
        if not self._pressed:
            return []
        named = range(self.size - len(_OTHERS))
        return [row for row in named if self.keys[row] is not None and self._seen_at[row] < self._now]

    def free_idle(self) -> list[int]:
        """Frees the idle rows and returns them. Only at a round boundary, when their sums and sketches were drained."""
        freed = self.idle()
        for row in freed:
            key, self.keys[row] = self.keys[row], None
            self._row.pop(str(key), None)
            heapq.heappush(self._free, row)
        if freed:
            self._elsewhere.clear()
        return freed

    def next_round(self) -> None:
        """A round ended."""
        self._now += 1
        self._pressed = False

    def _of(self, key: str) -> int:
        row = self._row.get(key)
        if row is not None:
            return row
        eligible = key in self._ever or len(self._ever) < self._lifetime
        row = self._elsewhere.get(key)
        if row is None:
            parsed = WorkloadKey.parse(key)
            if self._free and eligible:
                return self._take(key)
            row = self._row[f"{OTHER_LABEL}:{parsed.temperature_class.value}"]
            if len(self._elsewhere) < _REMEMBERED:
                self._elsewhere[key] = row
        self._pressed |= eligible
        return row

    def _take(self, key: str) -> int:
        row = heapq.heappop(self._free)
        self.keys[row], self._row[key] = key, row
        self._ever.add(key)
        return row


class RequestSlots:
    """Rows for live requests. One that is not finished in time loses its row to a newer one, the longest unseen first.

    Args:
        size: number of rows: the most requests that one step may hold.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._row: OrderedDict[Hashable, int] = OrderedDict()
        self._free = list(range(size))

    def __len__(self) -> int:
        return len(self._row)

    def rows(self, requests: Sequence[Hashable]) -> tuple[Index, list[int]]:
        """The row of each request [B], and the rows that are new to theirs and must be reset.

        Raises:
            InvalidValue: for more requests than rows; nothing is assigned.
        """
        if len(requests) > self.size:
            raise InvalidValue("requests", len(requests), f"at most {self.size} in one step")
        for request in requests:
            if request in self._row:
                self._row.move_to_end(request)
        fresh: list[int] = []
        found = [self._of(request, fresh) for request in requests]
        return np.array(found, dtype=np.intp), fresh

    def free(self, requests: Iterable[Hashable]) -> None:
        """These requests are finished; unknown ones are ignored."""
        for request in requests:
            row = self._row.pop(request, None)
            if row is not None:
                heapq.heappush(self._free, row)

    def _of(self, request: Hashable, fresh: list[int]) -> int:
        row = self._row.get(request)
        if row is None:
            row = heapq.heappop(self._free) if self._free else self._row.popitem(last=False)[1]
            self._row[request] = row
            fresh.append(row)
        return row
