"""Float64 references, random traffic, and both estimators fed alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accord.hooks.vllm.estimator import AcceptanceEstimator
from accord.learner.accumulator import Accumulator
from accord.learner.basis import FEATURE_LIMIT, Array, SplineBasis
from accord.learner.coefficients import Coefficients
from accord.learner.moments import Moments
from accord.learner.request_effect import WORKING_VARIANCE

CPU = torch.device("cpu")
KNOTS = (0.0, 2.0, 4.0)


def feature(logits: npt.ArrayLike, temperature: float = 1.0) -> float:
    """logit(q_max) of one row of logits in float64, with one mode left out of the sum."""
    x = np.asarray(logits, dtype=np.float64) / (float(np.float32(temperature)) if temperature > 0 else 1.0)
    mode = int(np.argmax(x))
    rest = np.exp(np.delete(x, mode) - x[mode]).sum()
    return float(np.clip(-np.log(rest), -FEATURE_LIMIT, FEATURE_LIMIT)) if rest > 0 else FEATURE_LIMIT


@dataclass
class Step:
    """One decode step as vLLM hands it over: request slots (-1 for padding), sampled and rejected counts."""

    idx_mapping: torch.Tensor
    num_sampled: torch.Tensor
    num_rejected: torch.Tensor

    @property
    def real(self) -> npt.NDArray[np.bool_]:
        """Which rows are no padding."""
        return self.idx_mapping.numpy() >= 0

    @property
    def accepted(self) -> npt.NDArray[np.int64]:
        """Accepted drafts of the real rows."""
        return np.maximum(self.num_sampled.numpy()[self.real] - 1, 0).astype(np.int64)

    @property
    def admitted(self) -> npt.NDArray[np.int64]:
        """Verified drafts of the real rows."""
        return self.accepted + self.num_rejected.numpy()[self.real]

    @property
    def requests(self) -> npt.NDArray[np.intp]:
        """Request slots of the real rows."""
        return self.idx_mapping.numpy()[self.real].astype(np.intp)


def random_step(rng: np.random.Generator, slots: int, k: int, rows: int, padding: float = 0.2) -> Step:
    """A batch in which some rows are padding, some prompts are still being read, and blocks are trimmed at random."""
    admitted = rng.integers(0, k + 1, rows)
    accepted = np.minimum(rng.geometric(0.25, rows) - 1, admitted)
    reading = rng.random(rows) < 0.1
    sampled = np.where(reading, 0, accepted + 1)
    rejected = np.where(reading, 0, admitted - accepted)
    idx = np.where(rng.random(rows) < padding, -1, rng.permutation(slots)[:rows])
    return Step(*(torch.tensor(part, dtype=torch.int32) for part in (idx, sampled, rejected)))


def random_rows(rng: np.random.Generator, workloads: int, k: int, basis: SplineBasis) -> list[Coefficients]:
    """Coefficients that float32 holds exactly."""
    rows = []
    for _ in range(workloads):
        slopes = rng.uniform(-0.1, 0.2, basis.size)
        slopes[0] = rng.uniform(0.4, 0.8)
        parts = slopes.astype(np.float32).astype(float), rng.uniform(-1, 1, k).astype(np.float32).astype(float)
        rows.append(Coefficients(*parts, float(np.float32(rng.choice([0.0, 0.1, 0.4])))))
    return rows


class Both:
    """Our estimator and the NumPy reference, fed the same steps.

    Args:
        workloads, k, slots: W, K, request slots.
        knots: of the basis.
        seed: of all randomness.
        device: where our estimator works.
    """

    def __init__(
        self,
        workloads: int,
        k: int,
        slots: int,
        knots: tuple[float, ...] = KNOTS,
        seed: int = 0,
        device: torch.device = CPU,
        working_variance: float = WORKING_VARIANCE,
    ) -> None:
        self.device = device
        self.basis = SplineBasis(knots)
        self.workloads, self.k, self.slots = workloads, k, slots
        self.rng = np.random.default_rng(seed)
        self.ours = AcceptanceEstimator(
            slots, k, device, basis=self.basis, workloads=workloads, working_variance=working_variance
        )
        self.reference = Accumulator(k, self.basis, workloads, slots, working_variance)
        self.workload_of = np.zeros(slots, dtype=np.intp)

    def apply(self, rows: list[Coefficients]) -> None:
        """Puts coefficients in force on both sides."""
        self.reference.apply(rows)
        self.ours.load(self.reference.slopes, self.reference.intercepts, self.reference.variance)

    def assign(self, requests: npt.ArrayLike, workloads: npt.ArrayLike) -> None:
        """Other requests take these slots."""
        index = np.asarray(requests, dtype=np.intp)
        self.ours.assign(index, workloads)
        self.reference.effects.reset(index)
        self.workload_of[index] = workloads

    def draw_features(self) -> None:
        """New drafts for every slot: features with both tails, and the effects in force, as `predict` leaves them."""
        self.ours._effects[:, 2:] = self.ours._effects[:, :2]
        f = self.rng.normal(2.0, 3.0, (self.slots, self.k))
        f = np.where(self.rng.random(f.shape) < 0.1, self.rng.choice([-40.0, 40.0, -4.0, 0.25, 12.0], f.shape), f)
        self.ours.features.copy_(torch.tensor(f, dtype=torch.float32))

    def verify(self, step: Step) -> None:
        """One step of verdicts on both sides."""
        features = self.ours.features.cpu().numpy()[step.requests].astype(np.float64)
        slots = self.workload_of[step.requests]
        self.reference.observe(features, slots, step.requests, step.accepted, step.admitted)
        verdict = step.idx_mapping, step.num_sampled, step.num_rejected
        self.ours.step(*(part.to(self.device) for part in verdict))

    def random_steps(self, count: int, rows: int) -> None:
        """Steps in which slots change hands now and then."""
        for _ in range(count):
            if self.rng.random() < 0.3:
                taken = self.rng.permutation(self.slots)[:2]
                self.assign(taken, self.rng.integers(0, self.workloads, 2))
            self.draw_features()
            self.verify(random_step(self.rng, self.slots, self.k, rows))


def assert_close(ours: Moments, reference: Moments) -> None:
    """Equal to float32 rounding of the largest sum of each kind; counts equal exactly."""
    for name, expected in reference.arrays().items():
        tolerance = 0.0 if name in ("n", "y") else 2e-6 * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(getattr(ours, name), expected, rtol=2e-5, atol=tolerance, err_msg=name)


def vllm_estimator(slots: int, k: int) -> Any:
    """vLLM's own, that refits only when asked to."""
    from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

    stock = OnlineAcceptanceEstimator(slots, k, CPU)
    stock.REFIT_INTERVAL = 1 << 60
    return stock


def published_refit(slope: float, intercepts: Array, moments: Moments) -> tuple[float, Array]:
    """One refit by the rule that vLLM publishes: a ridge Newton step, damped by n / (n + 50), from summed moments."""
    ridge, damping = 1e-3, 50.0
    B, c, g1, n = moments.B[0, :, 0], moments.c[0] + ridge, moments.g1[0], moments.n[0]
    step = (moments.g0[0, 0] - (B * g1 / c).sum()) / (moments.A[0, 0] + ridge - (B * B / c).sum())
    step *= n.sum() / (n.sum() + damping)
    if slope + step < 0.0:
        step = 0.0
    return slope + step, intercepts + (g1 - B * step) / c * n / (n + damping)
