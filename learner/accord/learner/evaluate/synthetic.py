"""Synthetic traces with known acceptance probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..basis import Array, SplineBasis
from ..coefficients import Coefficients
from ..errors import InvalidValue
from ..pair import DraftSampling, Method, Pair
from .trace import Trace

_MEAN_LENGTH = 40.0
"""Decode steps of a request, on average; lengths are geometric."""


@dataclass(frozen=True)
class Source:
    """One workload of a synthetic mixture.

    Args:
        key: `label:class`.
        coefficients: the truth, over `basis`; request_variance is the variance of the requests' random intercepts.
        share: of the requests, relative to the other sources.
        shift: added to the feature's mean.
    """

    key: str
    coefficients: Coefficients
    share: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class Synthetic:
    """A synthetic trace and its truth.

    Attributes:
        trace: what an engine would have recorded.
        log_odds: float64 [N, K], true log-odds of acceptance of each position, request effect included.
    """

    trace: Trace
    log_odds: Array

    def then(self, later: Synthetic) -> Synthetic:
        """This trace followed by a later one: an abrupt change of truth or mixture, at which every request ends.

        Raises:
            InvalidValue: when the later one has other workloads or another K.
        """
        first, second = self.trace, later.trace
        if (first.workloads, first.pair) != (second.workloads, second.pair):
            raise InvalidValue("later", second.workloads, f"must have the workloads and K of {first.workloads}")
        joined = replace(
            first,
            features=np.concatenate([first.features, second.features]),
            accepted=np.concatenate([first.accepted, second.accepted]),
            workload=np.concatenate([first.workload, second.workload]),
            request=np.concatenate([first.request, second.request + first.request.max(initial=-1) + 1]),
            step=np.concatenate([first.step, second.step + first.step.max(initial=-1) + 1]),
        )
        return Synthetic(joined, np.concatenate([self.log_odds, later.log_odds]))


def synthetic(
    sources: Sequence[Source],
    *,
    k: int = 7,
    basis: SplineBasis | None = None,
    concurrency: int = 32,
    steps: int = 900,
    seed: int = 0,
) -> Synthetic:
    """Draws a trace from a mixture of workloads with known coefficients.

    A request takes a slot, decodes for a geometric number of steps (mean 40), and makes room for one of another
    workload. Features are a mixture of two normal laws (unsure: 0.5 +- 1.2, sure: 5 +- 2), clipped to [-3, 12].

    Args:
        sources: at least one, with K intercepts each and distinct keys.
        k: draft positions; basis: of the coefficients, default a straight line.
        concurrency, steps: rows per step, and decode steps; seed: of the generator.

    Raises:
        InvalidValue: for coefficients that do not fit, or a share that is not positive.
    """
    basis = basis or SplineBasis(())
    for source in sources:
        if source.coefficients.k != k or len(source.coefficients.slopes) != basis.size or not source.share > 0.0:
            raise InvalidValue("source", source.key, f"needs K = {k} intercepts, F = {basis.size} slopes, share > 0")
    rng = np.random.default_rng(seed)
    request, of_request, effect = _schedule(rng, sources, concurrency, steps)
    workload = of_request[request].ravel()
    rows = steps * concurrency
    shift = np.array([source.shift for source in sources])[workload]
    sure = rng.random((rows, k)) < 0.5
    f = np.where(sure, rng.normal(5.0, 2.0, (rows, k)), rng.normal(0.5, 1.2, (rows, k))) + shift[:, None]
    features = np.clip(f, -3.0, 12.0).astype(np.float32)
    slopes = np.stack([source.coefficients.slopes for source in sources])
    intercepts = np.stack([source.coefficients.intercepts for source in sources])
    z: Array = np.einsum("nkf,nf->nk", basis.expand(features), slopes[workload]) + intercepts[workload]
    z += effect[request].ravel()[:, None]
    accept = rng.logistic(size=(rows, k)) < z
    accepted = np.cumprod(accept, axis=1).sum(axis=1)
    pair = Pair("synthetic-target", "synthetic-draft", Method.DRAFT_MODEL, DraftSampling.PROBABILISTIC, k)
    trace = Trace(
        features=features,
        accepted=accepted.astype(np.int64),
        workload=workload,
        workloads=tuple(source.key for source in sources),
        request=request.ravel(),
        step=np.repeat(np.arange(steps, dtype=np.int64), concurrency),
        pair=pair,
    )
    return Synthetic(trace, z)


def _schedule(
    rng: np.random.Generator, sources: Sequence[Source], concurrency: int, steps: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]], Array]:
    """Request ids [steps, concurrency], and the workload and the random intercept of each request."""
    starts = rng.random((steps, concurrency)) < 1.0 / _MEAN_LENGTH
    starts[0] = True
    ids = np.cumsum(starts.ravel()).reshape(starts.shape) - 1
    request = np.maximum.accumulate(np.where(starts, ids, -1), axis=0)
    share = np.array([source.share for source in sources])
    of_request = rng.choice(len(sources), size=int(starts.sum()), p=share / share.sum())
    deviation = np.sqrt([source.coefficients.request_variance for source in sources])
    return request, of_request, rng.normal(size=len(of_request)) * deviation[of_request]
