"""vLLM's acceptance estimator with coefficients per workload: predicts, and sums what verification teaches."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton

from accord.learner.basis import Array, SplineBasis
from accord.learner.coefficients import Coefficients
from accord.learner.errors import InvalidValue
from accord.learner.moments import GRID, Moments
from accord.learner.request_effect import VARIANCE_GRID, WORKING_VARIANCE
from accord.learner.sketch import BINS, SURVIVAL_BINS, Sketch

from .layout import Layout
from .predict_kernel import predict_kernel
from .staging import Downloader, FenceFactory, Uploader, fence_factory
from .step_kernels import assign_kernel, step_kernel

MAX_WORKLOAD_SLOTS = 32
MAX_SPLITS = 64
VOCAB_BLOCK = 4096
ROWS_BLOCK = 256
REQUESTS_BLOCK = 32


class Drained(NamedTuple):
    """What was summed between two drains, float64.

    Attributes:
        moments: `Moments` [W], exact at `slopes` and `intercepts`.
        sketch: `Sketch` [W] since the last drain that took it, or None.
        slopes, intercepts: [W, F], [W, K] in force at the drain, as the device rounds them.
        note: what the caller gave to `drain`.
    """

    moments: Moments
    sketch: Sketch | None
    slopes: Array
    intercepts: Array
    note: Any


class AcceptanceEstimator:
    """Predicts per-position acceptance by workload, with the interface of vLLM's `OnlineAcceptanceEstimator`.

    `predict` may run inside captured CUDA graphs; everything else runs outside of them, on the stream that replays
    them. Nothing reads device data on the host, and after construction nothing allocates device memory.

    Args:
        max_num_reqs: request slots of the engine.
        num_speculative_steps: K.
        device: where logits live.
        basis: spline basis of the pair.
        workloads: W, workload slots, at most 32. Every request starts in slot 0.
        working_variance: how labels of one request are weighed as evidence; 0 counts every label in full, as vLLM does.
        make_fence: a seam for tests.

    Attributes:
        slopes, intercepts, variance: float64 [W, F], [W, K], [W]: what is in force, as the device rounds it.
        features: float32 [max_num_reqs, K], logit(q_max) of the last drafts; NaN where logits defined none.

    Raises:
        InvalidValue: for a number of slots that is out of range.
    """

    def __init__(
        self,
        max_num_reqs: int,
        num_speculative_steps: int,
        device: torch.device,
        *,
        basis: SplineBasis | None = None,
        workloads: int = 1,
        working_variance: float = WORKING_VARIANCE,
        make_fence: FenceFactory | None = None,
    ) -> None:
        if not 1 <= workloads <= MAX_WORKLOAD_SLOTS:
            raise InvalidValue("workloads", workloads, f"must be 1 to {MAX_WORKLOAD_SLOTS}")
        self.max_num_reqs, self.num_speculative_steps = max_num_reqs, num_speculative_steps
        self.device = device
        self.basis = basis if basis is not None else SplineBasis()
        self.layout = Layout(workloads, num_speculative_steps, self.basis)
        # vLLM loads models in inference mode; tensors made in it could not be changed in place outside of it.
        with torch.inference_mode(False):
            self._allocate(device, working_variance, make_fence or fence_factory(device))
        self._padded_sums = triton.next_power_of_2(self.layout.row)
        cold = Coefficients.cold(num_speculative_steps, self.basis)
        self.load(np.tile(cold.slopes, (workloads, 1)), np.tile(cold.intercepts, (workloads, 1)), np.zeros(workloads))

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        confidence_probs: torch.Tensor,
        temperature: torch.Tensor,
    ) -> None:
        """Writes P(accept) of each drafted row, and keeps its feature for `step`.

        Args:
            logits: [rows, vocabulary] of the draft, any float dtype, contiguous rows, before temperature.
            idx_mapping: [rows] request slot, -1 for padding, which is left alone.
            draft_step: position k, a scalar; or [rows] for block drafting, where a request owns K consecutive rows.
            confidence_probs: float32 [requests, K] in batch order; [row, k] or [row // K, k] is written.
            temperature: float32 [max_num_reqs]; 0 counts as 1.
        """
        rows, vocab_size = logits.shape
        splits, padded_splits, block = split_vocabulary(vocab_size)
        predict_kernel[(splits, min(rows, self._max_rows))](
            confidence_probs,
            confidence_probs.stride(0),
            self.features,
            self._effects,
            self._workloads,
            self._theta,
            self._constants,
            self._partials,
            self._arrived,
            logits,
            logits.stride(0),
            idx_mapping,
            idx_mapping.stride(0),
            draft_step,
            temperature,
            vocab_size,
            K=self.num_speculative_steps,
            F=self.basis.size,
            STEP_PER_ROW=draft_step.dim() > 0,
            BLOCK=block,
            SPLITS=splits,
            PADDED_SPLITS=padded_splits,
        )

    def step(self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor) -> None:
        """Adds the verdicts on the last drafts, once a decode step, before the next drafts overwrite the features.

        Args:
            idx_mapping: [rows] request slots, each at most once; -1 for padding.
            num_sampled: [rows] accepted drafts and the token after them; 0 while a prompt is being read.
            num_rejected: [rows] verified drafts that were not accepted.
        """
        rows = idx_mapping.shape[0]
        if rows == 0:
            return
        layout = self.layout
        k = layout.k
        wide = rows > ROWS_BLOCK
        step_kernel[(layout.workloads * k - (-rows // REQUESTS_BLOCK),)](
            self._sums,
            self._acceptance,
            self._survival,
            self._effects,
            self._theta,
            self._constants,
            self.features,
            self._workloads,
            idx_mapping,
            num_sampled,
            num_rejected,
            rows,
            W=layout.workloads,
            K=k,
            F=self.basis.size,
            GRID=GRID,
            SUMS=layout.row,
            PADDED_SUMS=self._padded_sums,
            BINS=BINS,
            SURVIVAL_BINS=SURVIVAL_BINS,
            BLOCK=triton.next_power_of_2(rows) if wide else ROWS_BLOCK,
            PART=REQUESTS_BLOCK,
            num_warps=4 if wide else 1,
        )

    def assign(self, requests: npt.ArrayLike, workloads: npt.ArrayLike, *, fresh: bool = True) -> None:
        """Gives request slots [n] to workload slots [n]: call it before the first draft of a request.

        Args:
            requests: distinct request slots.
            workloads: workload slots.
            fresh: whether other requests have taken the slots, so that the effects of the old ones are forgotten;
                False moves live requests to another workload.

        Raises:
            InvalidValue: when slots are out of range, repeated, or of unequal number; nothing is changed.
        """
        slots = np.asarray(requests, dtype=np.int32)
        staged = np.stack([slots, np.broadcast_to(np.asarray(workloads, dtype=np.int32), slots.shape)], axis=-1)
        if slots.ndim != 1 or len(set(slots.tolist())) != len(slots):
            raise InvalidValue("requests", slots.tolist(), "must be distinct request slots")
        if not len(slots):
            return
        if staged.min() < 0 or slots.max() >= self.max_num_reqs or staged[:, 1].max() >= self.layout.workloads:
            why = f"must be below {self.max_num_reqs} requests and {self.layout.workloads} workloads"
            raise InvalidValue("slots", staged.tolist(), why)
        self._assignments.upload(staged.reshape(-1))
        assign_kernel[(-(-len(slots) // ROWS_BLOCK),)](
            self._workloads, self._effects, self._staged, len(slots), FRESH=fresh, BLOCK=ROWS_BLOCK
        )

    def load(self, slopes: npt.ArrayLike, intercepts: npt.ArrayLike, variance: npt.ArrayLike) -> None:
        """Puts coefficients in force, in place, so that captured graphs see them. Drain first: sums are of one theta.

        Args:
            slopes: [W, F]; intercepts: [W, K]; variance: [W], s2 of the request effect.

        Raises:
            InvalidValue: for other shapes or values that are not finite in float32; nothing is changed.
        """
        layout = self.layout
        parts = [np.asarray(part, dtype=np.float64) for part in (slopes, intercepts, variance)]
        shapes = [(layout.workloads, self.basis.size), (layout.workloads, layout.k), (layout.workloads,)]
        for name, part, shape in zip(("slopes", "intercepts", "variance"), parts, shapes, strict=True):
            if part.shape != shape:
                raise InvalidValue(name, part.shape, f"must have shape {shape}")
            if not np.all(np.abs(part) <= np.finfo(np.float32).max):
                raise InvalidValue(name, part.tolist(), "must be finite")
        theta = layout.theta(*parts)
        self._coefficients.upload(theta.reshape(-1))
        rounded = theta.astype(np.float64)
        f = self.basis.size
        self.slopes, self.intercepts, self.variance = rounded[:, :f], rounded[:, f:-1], rounded[:, -1]

    def drain(self, with_sketch: bool = False, note: Any = None) -> bool:
        """Queues the sums, and the sketches if asked for, for the host, and starts new ones.

        False, with nothing done, while two earlier drains wait for the device or for `collect`: the sums then go on,
        and because they are of one theta the caller must not `load` either.
        """
        size = self.layout.total if with_sketch else self.layout.sums
        return self._downloads.start(size, (with_sketch, self.slopes, self.intercepts, note))

    def collect(self) -> Drained | None:
        """The oldest drain that the device has finished, or None; never waits."""
        drained: Drained | None = self._downloads.finished(self._read)
        return drained

    def _allocate(self, device: torch.device, working_variance: float, make_fence: FenceFactory) -> None:
        layout = self.layout

        def floats(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=device)

        self.features = floats(self.max_num_reqs, layout.k)
        self._effects = floats(self.max_num_reqs, 4)
        self._workloads = torch.zeros(self.max_num_reqs, dtype=torch.int32, device=device)
        self._theta = floats(layout.workloads, layout.theta_row)
        constants = (*self.basis.knots, *VARIANCE_GRID, working_variance)
        self._constants = torch.tensor(constants, dtype=torch.float32, device=device)
        self._flat = floats(layout.total)
        middle = layout.sums + layout.acceptance
        self._sums, self._acceptance, self._survival = self._flat.tensor_split((layout.sums, middle))
        # The most rows that can belong to requests; a batch beyond that is padding.
        self._max_rows = self.max_num_reqs * self.num_speculative_steps
        self._partials = floats(self._max_rows * MAX_SPLITS * 2)
        self._arrived = torch.zeros(self._max_rows, dtype=torch.int32, device=device)

        self._staged = torch.zeros(2 * self.max_num_reqs, dtype=torch.int32, device=device)
        self._assignments = Uploader(self._staged, make_fence)
        self._coefficients = Uploader(self._theta, make_fence)
        self._downloads = Downloader(self._flat, make_fence)

    def _read(self, flat: npt.NDArray[np.float32], drain: tuple[bool, Array, Array, Any]) -> Drained:
        with_sketch, slopes, intercepts, note = drain
        sketch = self.layout.sketch(flat) if with_sketch else None
        return Drained(self.layout.moments(flat), sketch, slopes, intercepts, note)


@functools.lru_cache(maxsize=8)
def split_vocabulary(size: int) -> tuple[int, int, int]:
    """Into how many blocks a row of logits is split, that number's next power of two, and the length of a block."""
    block = VOCAB_BLOCK
    while -(-size // block) > MAX_SPLITS:
        block *= 2
    splits = -(-size // block)
    return splits, triton.next_power_of_2(splits), block
