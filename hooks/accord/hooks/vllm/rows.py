"""A coefficient table as one array: what travels between ranks, and what slots are filled from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from accord.learner.basis import Array
from accord.learner.coefficients import CoefficientTable


@dataclass(frozen=True)
class Rows:
    """Coefficients of named workloads, and of every other.

    Args:
        names: N workload keys.
        values: float64 [N + 1, F + K + 1], a row for each name, the prior row last; slopes, intercepts, variance.
        f: F, the number of slopes.

    >>> rows = Rows.of(CoefficientTable.cold("p", k=2, knots=()))
    >>> [part.tolist() for part in rows.take(["code:warm"])]
    [[[0.5]], [[-0.2, -0.2]], [0.0]]
    """

    names: tuple[str, ...]
    values: Array
    f: int
    _at: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_at", {name: at for at, name in enumerate(self.names)})

    @classmethod
    def of(cls, table: CoefficientTable) -> Rows:
        """All rows of a table."""
        rows = [*table.workloads.values(), table.prior]
        values = np.empty((len(rows), table.basis.size + table.k + 1))
        for at, row in enumerate(rows):
            values[at, : -table.k - 1], values[at, -table.k - 1 : -1] = row.slopes, row.intercepts
            values[at, -1] = row.request_variance
        return cls(tuple(table.workloads), values, table.basis.size)

    @classmethod
    def parse(cls, names: Sequence[str], data: bytes, f: int) -> Rows:
        """The inverse of (`names`, `values.tobytes()`, `f`)."""
        return cls(tuple(names), np.frombuffer(data).reshape(len(names) + 1, -1), f)

    def take(self, keys: Sequence[str | None]) -> tuple[Array, Array, Array]:
        """Slopes [W, F], intercepts [W, K] and variances [W] of workloads [W]; None gets the prior row."""
        found = self.values[[self._at.get(key, -1) if key is not None else -1 for key in keys]]
        return found[:, : self.f], found[:, self.f : -1], found[:, -1]

    def digest(self, keys: Sequence[str | None]) -> str:
        """Sixteen hex digits over workloads and everything that they are predicted with."""
        hashed = hashlib.blake2b(repr(tuple(keys)).encode(), digest_size=8)
        for part in self.take(keys):
            hashed.update(part.tobytes())
        return hashed.hexdigest()
