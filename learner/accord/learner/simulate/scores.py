"""Scores by which drafts compete: survival, survival with hindsight, and how either reaches an unchanged scheduler.

Speculative decoding stays lossless when whether a draft is verified does not depend on its own draw or on anything
after it. So the survival of position j may use all that was drawn before j, which is part of j's prefix:

    S[j] = prod over m < j of P(accept m | q_max, token drawn) times P(accept j | q_max)

S may rise along a request: a lucky draw makes everything behind it more likely than the draft itself looked. The
scheduler admits the highest scores, and must still stop at a place that its prefix decides; so the score is a running
minimum that falls strictly, T[j] = min(T[j - 1] (1 - 1e-4), S[j]): j is verified when T[j], known before j is drawn,
is among the best, and T[j] then says the same of every position before it. A scheduler that multiplies per-position
confidences gets T back from confidence[j] = T[j] / T[j - 1].
"""

from __future__ import annotations

import numpy as np

from ..basis import Array

STRICTNESS = 1e-4
"""By how much, relatively, the score falls at least from one position to the next: more than float32 can blur."""


def survival(probability: Array) -> Array:
    """P(a draft and all before it are accepted) [B, K] from P(accept | those before accepted) [B, K]."""
    product: Array = np.cumprod(probability, axis=1, dtype=np.float64)
    return product


def hindsight_survival(probability: Array, given_draw: Array) -> Array:
    """S [B, K]: survival that knows which tokens were drawn before each position, but not the one at it.

    Args:
        probability: [B, K] P(accept | q_max); given_draw: [B, K] P(accept | q_max, token drawn).

    >>> hindsight_survival(np.array([[0.5, 0.8]]), np.array([[0.9, 0.1]]))
    array([[0.5 , 0.72]])
    """
    known = np.ones_like(probability)
    np.cumprod(given_draw[:, :-1], axis=1, out=known[:, 1:])
    return known * probability


def running_minimum(score: Array) -> Array:
    """T [B, K] of S [B, K]: T[0] = S[0], T[j] = min(T[j - 1] (1 - 1e-4), S[j]); strictly decreasing where > 0.

    >>> running_minimum(np.array([[0.5, 0.72, 0.3]]))
    array([[0.5    , 0.49995, 0.3    ]])
    """
    # T[j] / c^j with c = 1 - 1e-4 is a plain running minimum.
    scale = (1.0 - STRICTNESS) ** np.arange(score.shape[1])
    least: Array = np.minimum.accumulate(score / scale, axis=1) * scale
    return least


def confidence(score: Array) -> Array:
    """T[j] / T[j - 1] [B, K] (T[0] at 0), what a scheduler that takes running products must be given to rank by T.

    >>> confidence(np.array([[0.5, 0.25, 0.0]]))
    array([[0.5, 0.5, 0. ]])
    """
    ratio = np.array(score, dtype=np.float64)
    np.divide(score[:, 1:], score[:, :-1], out=ratio[:, 1:], where=score[:, :-1] > 0.0)
    return ratio
