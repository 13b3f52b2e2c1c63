"""Exact metrics of probabilities against labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from ..basis import Array
from ..calibration import ECE_BINS
from ..errors import InvalidValue

METRICS = ("log_loss", "ece", "auc", "brier")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Metrics:
    """How good probabilities are over a set of labels.

    Attributes:
        labels: how many.
        log_loss: mean, in nats; probabilities are kept 2^-52 away from 0 and 1, as scikit-learn does.
        ece: expected calibration error over 20 equal-width bins (Guo et al. 2017), weighted by labels.
        auc: probability that an accepted label is ranked above a rejected one (a tie counts half); NaN for one class.
        brier: mean squared error.
    """

    labels: int
    log_loss: float
    ece: float
    auc: float
    brier: float

    @classmethod
    def of(cls, p: npt.ArrayLike, y: npt.ArrayLike) -> Metrics:
        """Metrics of probabilities [M] against labels [M]; all NaN when there are none.

        Raises:
            InvalidValue: for shapes that differ, or a probability outside [0, 1].

        >>> m = Metrics.of([0.9, 0.8, 0.3], [True, False, False])
        >>> round(m.auc, 3), round(m.ece, 3), round(m.brier, 3)
        (1.0, 0.4, 0.247)
        """
        probability, label = np.asarray(p, dtype=np.float64), np.asarray(y, dtype=np.bool_)
        if probability.shape != label.shape or label.ndim != 1:
            raise InvalidValue("p", probability.shape, f"must have the labels' shape [M], {label.shape}")
        if not label.size:
            return cls(0, *[float("nan")] * len(METRICS))
        if not np.all((probability >= 0.0) & (probability <= 1.0)):
            raise InvalidValue("p", float(probability.min()), "must lie within 0 and 1")
        return cls(
            labels=label.size,
            log_loss=log_loss(probability, label),
            ece=expected_calibration_error(probability, label),
            auc=area_under_curve(probability, label),
            brier=float(np.mean(np.square(probability - label))),
        )

    def to_dict(self) -> dict[str, float | None]:
        """The four metrics by name; None stands for NaN, which JSON has no word for."""
        values = asdict(self)
        return {name: None if np.isnan(values[name]) else values[name] for name in METRICS}


def log_loss(p: Array, y: Mask) -> float:
    """Mean log-loss in nats."""
    eps = np.finfo(np.float64).eps
    bounded = np.clip(p, eps, 1.0 - eps)
    return float(-np.mean(np.log(np.where(y, bounded, 1.0 - bounded))))


def expected_calibration_error(p: Array, y: Mask, bins: int = ECE_BINS) -> float:
    """Sum over bins of |mean probability - share accepted|, weighted by the bin's share of labels."""
    index = np.minimum((p * bins).astype(np.intp), bins - 1)
    gap = np.bincount(index, weights=p - y, minlength=bins)
    return float(np.abs(gap).sum() / len(p))


def area_under_curve(p: Array, y: Mask) -> float:
    """The rank statistic of Mann and Whitney (1947) with midranks for ties; NaN when a class is missing."""
    positive = int(y.sum())
    negative = len(y) - positive
    if not positive or not negative:
        return float("nan")
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    midrank = last - 0.5 * (count - 1)
    ranks = float(midrank[place][y].sum())
    return (ranks - 0.5 * positive * (positive + 1)) / (positive * negative)


def workload_ece(parts: list[Metrics]) -> float:
    """The label-weighted mean of the workloads' ECE: what a pooled model cannot hide."""
    labels = sum(part.labels for part in parts)
    return sum(part.ece * part.labels for part in parts if part.labels) / labels if labels else float("nan")


def accepted_per_step(p: Array) -> float:
    """Accepted drafts that probabilities [N, K] expect of a request in a step: the mean of the summed survival."""
    return float(np.cumprod(p, axis=1).sum(axis=1).mean())


def by_position(p: Array, y: Mask, labelled: Mask) -> list[Metrics]:
    """Metrics of every draft position; all arrays [N, K]."""
    return [Metrics.of(p[m, k], y[m, k]) for k, m in enumerate(labelled.T)]
