"""Priors carried over: a pair that nobody has seen starts from the nearest known one instead of the published medians.

Near means the same target and method, and the same knots. Among those another K is nearest (the positions are the
same), then another sampling mode, then another draft; ties go to the closest K, then to the smallest id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .basis import Array
from .coefficients import Coefficients, CoefficientTable
from .hierarchy import Hierarchy
from .pair import Pair
from .state_codec import Learnt

Known = Mapping[str, tuple[Pair, tuple[float, ...]]]


def by_nearness(pair: Pair, knots: tuple[float, ...], known: Known) -> list[str]:
    """Ids of the pairs whose prior may be carried over to a pair, nearest first."""
    near = [
        (other.draft != pair.draft, other.draft_sampling != pair.draft_sampling, abs(other.k - pair.k), pair_id)
        for pair_id, (other, theirs) in known.items()
        if pair_id != pair.id and (other.target, other.method) == (pair.target, pair.method) and theirs == knots
    ]
    return [item[-1] for item in sorted(near)]


def fitted_to(intercepts: Array, k: int) -> Array:
    """Intercepts for k positions: a longer row is cut, a shorter one repeats its last.

    >>> fitted_to(np.array([0.5, 0.2]), 4), fitted_to(np.array([0.5, 0.2]), 1)
    (array([0.5, 0.2, 0.2, 0.2]), array([0.5]))
    """
    padded: Array = np.append(intercepts, np.full(max(k - len(intercepts), 0), intercepts[-1]))[:k]
    return padded


def carried(fresh: Learnt, source: CoefficientTable) -> Learnt:
    """A pair that nobody has seen, centred on another's prior row; part of the state from its first commit on.

    The request effect is not carried: it is served once the pair's own labels gain from it.
    """
    state = fresh.state
    intercepts = fitted_to(source.prior.intercepts, state.k)
    state.hierarchy = Hierarchy.around(source.prior.slopes, intercepts)
    prior = Coefficients(source.prior.slopes, intercepts)
    origin: dict[str, Any] = {"pair": source.pair, "version": source.version, "published_ms": source.published_ms}
    return replace(fresh, served=replace(fresh.served, prior=prior), carried=origin)
