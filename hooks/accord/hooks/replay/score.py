"""Who predicts better: running totals of what was predicted and what happened, per workload and predictor."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.learner.basis import Array
from accord.learner.calibration import ECE_BINS, probability_bin
from accord.learner.evaluate.trace import Trace
from accord.learner.evaluate.vllm_rule import VllmRule

_TINY = 1e-12


@dataclass
class Score:
    """Totals over labels; they add up over engines.

    Attributes:
        labels, accepted: counts.
        loss: log-loss in nats, summed.
        bins: [20, 2] sum of predictions and of outcomes in equal-width probability bins.
    """

    labels: float
    accepted: float
    loss: float
    bins: Array

    @classmethod
    def empty(cls) -> Score:
        """No labels."""
        return cls(0.0, 0.0, 0.0, np.zeros((ECE_BINS, 2)))

    def add(self, p: Array, y: Array) -> None:
        """Adds labels y [N] (0 or 1) with their predictions p [N]."""
        q = np.clip(p, _TINY, 1.0 - _TINY)
        place = probability_bin(q)
        self.labels += len(y)
        self.accepted += float(y.sum())
        self.loss -= float(np.where(y > 0, np.log(q), np.log1p(-q)).sum())
        for column, weights in enumerate((q, y)):
            self.bins[:, column] += np.bincount(place, weights=weights, minlength=ECE_BINS)

    def merge(self, other: Score) -> None:
        """Adds another engine's totals."""
        self.labels += other.labels
        self.accepted += other.accepted
        self.loss += other.loss
        self.bins += other.bins

    @property
    def log_loss(self) -> float | None:
        """Nats per label."""
        return self.loss / self.labels if self.labels else None

    @property
    def ece(self) -> float | None:
        """Expected calibration error over 20 equal-width bins."""
        return float(np.abs(self.bins[:, 0] - self.bins[:, 1]).sum() / self.labels) if self.labels else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "labels": self.labels,
            "accepted": self.accepted,
            "loss": self.loss,
            "bins": self.bins.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Score:
        """The inverse of `to_dict`."""
        return cls(values["labels"], values["accepted"], values["loss"], np.array(values["bins"], dtype=np.float64))


class Scoreboard:
    """Scores by workload and predictor."""

    def __init__(self) -> None:
        self.scores: dict[str, dict[str, Score]] = {}

    def add(self, workload: str, predictor: str, p: Array, y: Array) -> None:
        """Adds labels of one workload under one predictor."""
        self._score(workload, predictor).add(p, y)

    def merge(self, values: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Adds what another board's `to_dict` says."""
        for workload, by_predictor in values.items():
            for predictor, score in by_predictor.items():
                self._score(workload, predictor).merge(Score.from_dict(score))

    def to_dict(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Plain values."""
        return {
            workload: {predictor: score.to_dict() for predictor, score in scores.items()}
            for workload, scores in sorted(self.scores.items())
        }

    def overall(self, predictor: str) -> Score:
        """All workloads together."""
        total = Score.empty()
        for scores in self.scores.values():
            if predictor in scores:
                total.merge(scores[predictor])
        return total

    def workload_ece(self, predictor: str) -> float | None:
        """The label-weighted mean of the workloads' calibration errors."""
        found = [s[predictor] for s in self.scores.values() if predictor in s and s[predictor].labels]
        labels = sum(score.labels for score in found)
        return sum(score.labels * (score.ece or 0.0) for score in found) / labels if labels else None

    def _score(self, workload: str, predictor: str) -> Score:
        return self.scores.setdefault(workload, {}).setdefault(predictor, Score.empty())


class Duel:
    """Scores what an engine predicted beside vLLM's published rule, which learns from the same steps by itself.

    An observer of a `ReplayEngine`; `scores` may be called from another thread.

    Args:
        k: draft positions.
    """

    def __init__(self, k: int) -> None:
        self._rule = VllmRule(k)
        self._board = Scoreboard()
        self._lock = threading.Lock()

    def __call__(self, trace: Trace, rows: npt.NDArray[np.intp], predicted: Array) -> None:
        """Scores one step, then lets the rule learn from it."""
        features, accepted, workload = trace.features[rows], trace.accepted[rows], trace.workload[rows]
        theirs = self._rule.predict(features)
        labelled, y = trace.labelled[rows], trace.y[rows].astype(np.float64)
        with self._lock:
            for index in np.unique(workload):
                chosen = labelled & (workload == index)[:, None]
                for name, p in (("accord", predicted), ("vllm", theirs)):
                    self._board.add(trace.workloads[index], name, p[chosen], y[chosen])
        self._rule.observe(features, accepted, np.full(len(rows), trace.k))

    def scores(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Totals so far, by workload and predictor."""
        with self._lock:
            return self._board.to_dict()
