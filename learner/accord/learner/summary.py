"""What one or several rounds of one engine taught: the only thing that travels from an engine to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .basis import Array, SplineBasis
from .errors import InvalidValue
from .moments import Moments
from .sketch import Sketch


@dataclass(frozen=True)
class RoundSummary:
    """Sums of an engine's rounds, exact at the coefficients it carries.

    Args:
        pair: pair id.
        engine: name of the engine, stable over restarts, e.g. `host-3/0` (host and data-parallel rank).
        boot: 16 hex digits drawn anew at every start of the engine.
        first_seq, last_seq: rounds covered; each boot counts its rounds from 1.
        version: of the coefficients in force at the end.
        steps: decode steps covered.
        k, knots: of the pair.
        workloads: [W] distinct keys `label:class`.
        slopes, intercepts: [W, F], [W, K]: the coefficients at which gradient and Hessian were taken.
        moments: `Moments` of the W workloads.
        sketch: `Sketch` of the W workloads since the last one that was sent, or None.
    """

    pair: str
    engine: str
    boot: str
    first_seq: int
    last_seq: int
    version: int
    steps: int
    k: int
    knots: tuple[float, ...]
    workloads: tuple[str, ...]
    slopes: Array
    intercepts: Array
    moments: Moments
    sketch: Sketch | None = None

    @property
    def basis(self) -> SplineBasis:
        """The spline basis of the knots."""
        return SplineBasis(self.knots)

    @property
    def rounds(self) -> int:
        """How many rounds are covered."""
        return self.last_seq - self.first_seq + 1

    @property
    def labels(self) -> int:
        """How many labels are summed."""
        return round(float(self.moments.n.sum()))

    def information(self) -> tuple[Array, Array]:
        """The information form (e0 [W, F], e1 [W, K]): gradient + Hessian . coefficients.

        Adds up over rounds, engines and versions, because the coefficients at which it was taken drop out to second
        order: e is the right-hand side of the Newton equation H theta = e.
        """
        zero = np.zeros_like(self.slopes), np.zeros_like(self.intercepts)
        return self.moments.gradient_at(self.basis, self.slopes, self.intercepts, *zero)

    def only(self, rows: Sequence[int]) -> RoundSummary:
        """What it says of some of its workloads, by their places; a copy.

        Raises:
            IndexError: for a place that is none.
        """
        index = np.asarray(rows, dtype=np.intp)
        return replace(
            self,
            workloads=tuple(self.workloads[row] for row in rows),
            slopes=self.slopes[index],
            intercepts=self.intercepts[index],
            moments=self.moments.take(index),
            sketch=None if self.sketch is None else self.sketch.take(index),
        )

    def merge(self, later: RoundSummary) -> RoundSummary:
        """The summary of both, taken at the later one's coefficients; nothing is lost.

        Hessians, counts, losses and sketches add up exactly, and the gradients exactly to second order, also over
        different coefficients. Merging is associative up to rounding.

        Raises:
            InvalidValue: when `later` does not follow this one in the same boot of the same engine and pair.
        """
        for name in ("pair", "engine", "boot", "k", "knots"):
            if getattr(self, name) != getattr(later, name):
                raise InvalidValue(name, getattr(later, name), f"cannot be merged with {getattr(self, name)!r}")
        if later.first_seq != self.last_seq + 1:
            raise InvalidValue("first_seq", later.first_seq, f"must follow {self.last_seq}")
        return _Merge(self, later).result()


class _Merge:
    """Both summaries laid out over the union of their workloads."""

    def __init__(self, earlier: RoundSummary, later: RoundSummary) -> None:
        self.earlier, self.later = earlier, later
        self.keys = tuple(dict.fromkeys((*earlier.workloads, *later.workloads)))
        self.rows = [self._index(s.workloads) for s in (earlier, later)]

    def result(self) -> RoundSummary:
        slopes, intercepts = self._coefficients()
        moments = Moments.zeros(len(self.keys), self.later.k, self.later.basis)
        for rows, part in zip(self.rows, (self.earlier, self.later), strict=True):
            g0, g1 = part.moments.gradient_at(part.basis, part.slopes, part.intercepts, slopes[rows], intercepts[rows])
            moments.add_at(rows, replace(part.moments, g0=g0, g1=g1))
        return replace(
            self.later,
            first_seq=self.earlier.first_seq,
            steps=self.earlier.steps + self.later.steps,
            workloads=self.keys,
            slopes=slopes,
            intercepts=intercepts,
            moments=moments,
            sketch=self._sketch(),
        )

    def _index(self, workloads: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        place = {key: row for row, key in enumerate(self.keys)}
        return np.array([place[key] for key in workloads], dtype=np.intp)

    def _coefficients(self) -> tuple[Array, Array]:
        slopes = np.zeros((len(self.keys), self.later.basis.size))
        intercepts = np.zeros((len(self.keys), self.later.k))
        for rows, part in zip(self.rows, (self.earlier, self.later), strict=True):
            slopes[rows], intercepts[rows] = part.slopes, part.intercepts
        return slopes, intercepts

    def _sketch(self) -> Sketch | None:
        parts = (self.earlier.sketch, self.later.sketch)
        if all(part is None for part in parts):
            return None
        total = Sketch.zeros(len(self.keys), self.later.k)
        for rows, part in zip(self.rows, parts, strict=True):
            if part is not None:
                total.add_at(rows, part)
        return total
