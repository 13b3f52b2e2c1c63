"""Drift: notices that new labels contradict the fit, and says since when.

Everything is judged in log-odds, before the labels enter the fit. Labels are gathered into blocks of at least
BLOCK_LABELS; of each block two numbers are watched:

- the residual: the one-step estimate of a common error of the log-odds, sum r / sum v;
- the deviance: what the block's own labels would explain away of its deviance, Q = g' (H + L)^-1 g (Rao's score
  statistic with the prior precision L), less its expectation, per unit of curvature and under a signed root: the root
  mean square error over all directions, slopes and positions included. Raw deviance would alarm at any change of mix.

Residuals are taken at the last fit: exact where the engines applied it, and to second order where they applied another
version, so that an engine with old coefficients is no drift. Two kinds of detector look at the blocks:

- a jump: the last 1, 2, 4 or 8 blocks are off by JUMP_SIGMAS standard errors, at once, also of all workloads together
  (row 0). Standard errors include the fit's own and a dispersion learnt from earlier blocks, because labels of one
  request resemble each other. This needs no River, so engines that fit by themselves have it too;
- ADWIN (Bifet and Gavalda 2007; River's) on both numbers, for what comes slowly.

ADWIN assumes independent values; its word counts when the newer blocks are worse than the older ones, by what is
material, and by CONFIRM_SIGMAS standard errors that allow for autocorrelation. River's objects are never stored: the
detector *is* ADWIN fed with the blocks in the ring from `start` on, built again after loading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis
from .hierarchy import LEVEL_VARIANCE, prior_slope_variance
from .information import Information

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_LABELS = 250
"""A block is closed by the tick that fills it; a busy tick is one block."""

KEPT = 64
RING = 2 * KEPT
"""Blocks of each workload; when they are full the oldest KEPT go."""

WARM_LABELS = 2_000
"""Before that a workload is being learnt, and everything changes."""

WINDOWS = (1, 2, 4, 8)
JUMP_SIGMAS = 5.0
PAIR_JUMP_SIGMAS = 4.5
"""For all workloads together: each must agree by itself before its memory is shortened."""

JUMP_LOG_ODDS = 0.2
REFERENCE = 4
"""Blocks before a window, at least."""

DISPERSION, DISPERSION_BATCHES = 2.0, 2.0
"""The dispersion expected before any block, and how many blocks that is worth."""

MATERIAL_LOG_ODDS = 0.1
CONFIRM_SIGMAS = 4.0
ADWIN = {"delta": 2e-4, "clock": 1, "min_window_length": 3, "grace_period": 10}
UNIT = 0.01
"""What ADWIN is fed with, in log-odds: so small that of its bound only the part with the variance counts."""

LIMIT = 4.0
FIELDS = 4
"""Of a block: sum r, sum v, labels, root of the excess deviance."""

PAIR_ROW = 0


@dataclass(frozen=True)
class Alarm:
    """One detected change.

    Attributes:
        row: 0 for all workloads together, else 1 + the workload's index.
        detector: `jump`, `residual` or `deviance`.
        before, after: error in log-odds of the older and the newer blocks; > 0 means more is accepted than predicted.
        labels: of the newer blocks, all of them arrived since the change.
    """

    row: int
    detector: str
    before: float
    after: float
    labels: float

    @property
    def direction(self) -> str:
        """Whether more or less is accepted than was predicted, or (deviance) something else than the level changed."""
        return "shape" if self.detector == "deviance" else "easier" if self.after > 0.0 else "harder"

    def to_dict(self) -> dict[str, Any]:
        """As history shows it."""
        return {
            "detector": self.detector,
            "whole_pair": self.row == PAIR_ROW,
            "before": self.before,
            "after": self.after,
            "direction": self.direction,
            "labels": self.labels,
        }


class DriftMonitor:
    """Watches 1 + W rows of blocks: row 0 is the whole pair.

    Args:
        k, basis: of the pair; river: whether ADWIN runs beside the jump detector.

    Attributes:
        ring: [1 + W, RING, 4] blocks, oldest first; filled, start: int64 [1 + W], blocks held, and the first that ADWIN
            has seen; pending: [1 + W, 2 + size], the block being filled: labels, then (A, B, c, g0, g1) flat.
        recent: [W, 2] sum r and sum v since the pair's last block.
    """

    def __init__(self, k: int, basis: SplineBasis, *, river: bool = True) -> None:
        self.k, self.basis, self.river = k, basis, river
        self.ring = np.zeros((1, RING, FIELDS))
        self.filled, self.start = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        self.pending = np.zeros((1, self.pending_size))
        self.recent = np.zeros((0, 2))
        self._adwin: dict[tuple[int, int], Any] = {}

    @property
    def pending_size(self) -> int:
        """Numbers of a row of `pending`."""
        f, k = self.basis.size, self.k
        return 1 + self.basis.packed_size + k * f + k + f + k

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What must be stored, by name."""
        names = ("ring", "filled", "start", "pending", "recent")
        return {f"drift_{name}": getattr(self, name) for name in names}

    def reserve(self, count: int) -> None:
        """Adds rows for new workloads."""
        for name in ("ring", "filled", "start", "pending", "recent"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((count, *old.shape[1:]), dtype=old.dtype)]))

    def remove(self, index: int) -> None:
        """Takes the rows of a workload away. ADWIN is built again from the rings, as after loading."""
        for name in ("ring", "filled", "start", "pending"):
            setattr(self, name, np.delete(getattr(self, name), 1 + index, axis=0))
        self.recent = np.delete(self.recent, index, axis=0)
        self._adwin.clear()

    def observe(
        self, tick: Information, labels: Array, fit: tuple[Array, Array], seen: npt.NDArray[np.int64], known: Array
    ) -> list[Alarm]:
        """Takes in the evidence of one tick, before it is learnt; returns at most one alarm for each row.

        Args:
            tick: evidence of all W workloads, zero where there is none; labels: [W] how many.
            fit: slopes [W, F] and intercepts [W, K] in force; see `forget` for what follows an alarm.
            seen: [W] labels behind the fit, ever; known: [W] the curvature (sum v) that it rests on.
        """
        if self.pending[PAIR_ROW, 0] == 0.0:
            self.recent[:] = 0.0
        warm = (seen >= WARM_LABELS) & (labels > 0.0)
        if not np.any(warm):
            return []
        g0, g1 = residual_gradient(tick, self.basis, *fit)
        parts = (labels[:, None], tick.A, tick.B, tick.c, g0, g1)
        flat = np.concatenate([part.reshape(len(labels), -1) for part in parts], axis=1)
        flat[~np.all(np.isfinite(flat), axis=1) | ~warm] = 0.0
        self.pending[1:] += flat
        self.pending[PAIR_ROW] += flat.sum(axis=0)
        c, g = tick.c.sum(axis=1), g1.sum(axis=1)
        self.recent += np.stack([np.where(flat[:, 0] > 0.0, g, 0.0), np.where(flat[:, 0] > 0.0, c, 0.0)], axis=1)
        curvature = np.append(known[warm].sum(), known)
        return list(self._closed_blocks(curvature))

    def forget(self, index: int) -> None:
        """After an alarm was acted on: a workload's blocks speak of a fit that is gone, and so do the pair's."""
        for row in (PAIR_ROW, 1 + index):
            self.ring[row], self.filled[row], self.start[row], self.pending[row] = 0.0, 0, 0, 0.0
            self._drop(row)
        self.recent[index] = 0.0

    def follows(self, index: int, alarm: Alarm) -> bool:
        """Whether a workload's own new labels agree with an alarm of the whole pair."""
        g, c = self.recent[index]
        return bool(c > 0.0 and g / c * np.sign(alarm.after) > 0.5 * abs(alarm.after))

    def dispersion(self, row: int) -> float:
        """How much more a block's sum of residuals scatters than that of independent labels would; >= 1."""
        return _dispersion(self.ring[row, : self.filled[row]], 1)

    def _closed_blocks(self, curvature: Array) -> Iterator[Alarm]:
        rows = np.flatnonzero(self.pending[:, 0] >= BLOCK_LABELS)
        for row, block in zip(rows.tolist(), self._blocks(rows), strict=True):
            if self.filled[row] == RING:
                self._halve(row)
            self.ring[row, self.filled[row]] = block
            self.pending[row] = 0.0
            self.filled[row] += 1
            jump = self._jump(row, curvature[row])
            drift = self._drift(row, curvature[row]) if self.river else None
            alarm = jump or drift
            if alarm is not None:
                yield alarm

    def _blocks(self, rows: npt.NDArray[np.intp]) -> Array:
        """What is pending in some rows as blocks, [R, 4]."""
        f, k, packed = self.basis.size, self.k, self.basis.packed_size
        n, A, B, c, g0, g1 = np.split(self.pending[rows], np.cumsum([1, packed, k * f, k, f]), axis=1)
        r, v = g1.sum(axis=1), c.sum(axis=1)
        explained = explained_deviance(self.basis.unpack(A), B.reshape(-1, k, f), c, g0, g1)
        excess = np.where(rows == PAIR_ROW, 0.0, explained / np.maximum(v, 1.0))
        root = np.clip(np.sign(excess) * np.sqrt(np.abs(excess)), -LIMIT, LIMIT)
        return np.stack([r, v, n[:, 0], root], axis=1)

    def _jump(self, row: int, curvature: float) -> Alarm | None:
        blocks = self.ring[row, : self.filled[row]]
        for window in WINDOWS:
            older, newer = blocks[:-window], blocks[-window:]
            if len(older) < max(REFERENCE, window):
                break
            if abs(_offset(newer)) <= JUMP_LOG_ODDS:
                continue
            z = _score(newer, curvature, older, window)
            sigmas = PAIR_JUMP_SIGMAS if row == PAIR_ROW else JUMP_SIGMAS
            # with few batches their scatter is not well known
            if abs(z) > sigmas * (1.0 + 1.0 / (len(older) // window)):
                return Alarm(row, "jump", _offset(older), _offset(newer), float(newer[:, 2].sum()))
        return None

    def _drift(self, row: int, curvature: float) -> Alarm | None:
        found = None
        for series, name in enumerate(("residual", "deviance")):
            if row == PAIR_ROW and name == "deviance":
                continue
            adwin = self._detector(row, series)
            blocks = self.ring[row, : self.filled[row]]
            adwin.update(self._value(row, int(self.filled[row]) - 1, series))
            if adwin.drift_detected:
                width = max(int(adwin.width), 1)
                found = found or _confirmed(row, name, blocks, _since(blocks, series), curvature)
                self.start[row] = self.filled[row] - width
                self._drop(row)
        return found

    def _detector(self, row: int, series: int) -> Any:
        """ADWIN as it stands before the newest block."""
        if (row, series) not in self._adwin:
            self._adwin[row, series] = self._built(row, series, int(self.filled[row]) - 1)
        return self._adwin[row, series]

    def _built(self, row: int, series: int, end: int) -> Any:
        from river import drift

        detector: Any = drift.ADWIN(**ADWIN)  # type: ignore[no-untyped-call]
        for place in range(int(self.start[row]), end):
            detector.update(self._value(row, place, series))
        return detector

    def _value(self, row: int, place: int, series: int) -> float:
        g, c, _, root = self.ring[row, place]
        value = root if series else g / max(c, 1.0)
        return float(np.clip(value, -LIMIT, LIMIT)) / UNIT if np.isfinite(value) else 0.0

    def _halve(self, row: int) -> None:
        self.ring[row, :KEPT], self.ring[row, KEPT:] = self.ring[row, KEPT:].copy(), 0.0
        self.filled[row], self.start[row] = KEPT, max(int(self.start[row]) - KEPT, 0)
        self._drop(row)

    def _drop(self, row: int) -> None:
        for series in (0, 1):
            self._adwin.pop((row, series), None)


def residual_gradient(
    evidence: Information, basis: SplineBasis, slopes: Array, intercepts: Array
) -> tuple[Array, Array]:
    """(sum r x [W, F], sum r [W, K]) of evidence at other coefficients, exact to second order: e - H theta."""
    g0 = evidence.e0 - np.einsum("wij,wj->wi", basis.unpack(evidence.A), slopes)
    g0 -= np.einsum("wkf,wk->wf", evidence.B, intercepts)
    g1: Array = evidence.e1 - np.einsum("wkf,wf->wk", evidence.B, slopes) - evidence.c * intercepts
    return g0, g1


def explained_deviance(A: Array, B: Array, c: Array, g0: Array, g1: Array) -> Array:
    """g' (H + L)^-1 g less its expectation, for R arrowheads at once, [R].

    Args:
        A: [R, F, F]; B: [R, K, F]; c: [R, K], the Hessians; g0: [R, F]; g1: [R, K], the gradients.
    """
    slope, level = 1.0 / prior_slope_variance(A.shape[1]), 1.0 / LEVEL_VARIANCE
    c = c + level
    share = B / c[:, :, None]
    top = np.linalg.inv(A + np.diag(slope) - np.einsum("rkf,rkg->rfg", B, share))
    x0 = np.einsum("rfg,rg->rf", top, g0 - np.einsum("rkf,rk->rf", share, g1))
    x1 = (g1 - np.einsum("rkf,rf->rk", B, x0)) / c
    score = (g0 * x0).sum(axis=1) + (g1 * x1).sum(axis=1)
    # E[g g'] = H, so the expectation is tr(H (H + L)^-1) = F + K - tr(L (H + L)^-1)
    corner = (1.0 / c).sum(axis=1) + np.einsum("rkf,rfg,rkg->r", share, top, share)
    kept = np.einsum("rff,f->r", top, slope) + level * corner
    expected = A.shape[1] + c.shape[1] - kept
    out: Array = score - expected
    return out


def check_river() -> None:
    """Raises ImportError now rather than in the middle of a stream when River is missing (extra `learner`)."""
    import river.drift  # noqa: F401


def _offset(blocks: Array) -> float:
    """One-step estimate of the common error of the log-odds."""
    return float(blocks[:, 0].sum() / max(float(blocks[:, 1].sum()), 1.0))


def _score(blocks: Array, curvature: float, older: Array, window: int) -> float:
    """sum r in standard errors: of the labels, as older batches of so many blocks scattered, and of the fit itself.

    Whether a larger sum of residuals scatters like its binomial variance (more requests) or like its square (longer
    requests) cannot be seen from sums, so the wider of the two holds.
    """
    c = max(float(blocks[:, 1].sum()), 1.0)
    own = c / (curvature + 1.0 / LEVEL_VARIANCE)
    batches = _batches(older, window)
    g, v = batches[:, 0], np.maximum(batches[:, 1], 1.0)
    square = float((g**2 - v).sum() / (v**2).sum()) if len(v) else 0.0
    scatter = max(_dispersion(older, window), 1.0 + max(square, 0.0) * c)
    return float(blocks[:, 0].sum() / np.sqrt(c * (scatter + own)))


def _batches(blocks: Array, window: int) -> Array:
    """sum r and sum v of disjoint batches of so many blocks, counted from the newest, [N, 2]."""
    count = len(blocks) // window
    sums: Array = blocks[len(blocks) - count * window :, :2].reshape(count, window, 2).sum(axis=1)
    return sums


def _dispersion(blocks: Array, window: int) -> float:
    """Mean square of sum r over its binomial variance, over batches of blocks, with a weak prior; >= 1."""
    batches = _batches(blocks, window)
    total = DISPERSION * DISPERSION_BATCHES + float((batches[:, 0] ** 2 / np.maximum(batches[:, 1], 1.0)).sum())
    return max(total / (DISPERSION_BATCHES + len(batches)), 1.0)


def _since(blocks: Array, series: int) -> int:
    """How many of the newest blocks the change is old: the split whose two means differ most, in standard errors.

    ADWIN itself drops old blocks only bucket by bucket, so that its window reaches back beyond the change.
    """
    values = blocks[:, 3] if series else blocks[:, 0] / np.maximum(blocks[:, 1], 1.0)
    older = np.arange(1, len(values))
    newer, sums = len(values) - older, np.cumsum(values)
    apart = np.abs((sums[-1] - sums[:-1]) / newer - sums[:-1] / older) / np.sqrt(1.0 / newer + 1.0 / older)
    return int(newer[np.argmax(apart)])


def _confirmed(row: int, name: str, blocks: Array, width: int, curvature: float) -> Alarm | None:
    """ADWIN's word as an alarm, or None when the newer blocks are not clearly and materially worse."""
    older, newer = blocks[:-width], blocks[-width:]
    if len(older) < REFERENCE:
        return None
    labels = float(newer[:, 2].sum())
    if name == "residual":
        before, after = _offset(older), _offset(newer)
        offsets = [part[:, 0] / np.maximum(part[:, 1], 1.0) for part in (older, newer)]
        sigmas = min(
            abs(_score(newer, curvature, older, min(width, WINDOWS[-1]))),
            abs(after - before) / _standard_error(*offsets),
        )
    else:
        before, after = float(older[:, 3].mean()), float(newer[:, 3].mean())
        sigmas = (after - before) / _standard_error(older[:, 3], newer[:, 3])
    if sigmas < CONFIRM_SIGMAS or abs(after) < max(MATERIAL_LOG_ODDS, abs(before)):
        return None
    return Alarm(row, name, before, after, labels)


def _standard_error(older: Array, newer: Array) -> float:
    """Of the difference of two means of one autocorrelated series: that of independent values, widened as for AR(1)."""
    apart = np.concatenate([older - older.mean(), newer - newer.mean()])
    variance = float(apart @ apart) / max(len(apart) - 2, 1)
    rho = float(np.clip(apart[1:] @ apart[:-1] / max(float(apart @ apart), 1e-12), 0.0, 0.97))
    widened = variance * (1.0 + rho) / (1.0 - rho) * (1.0 / len(older) + 1.0 / len(newer))
    return float(np.sqrt(max(widened, 1e-12)))
