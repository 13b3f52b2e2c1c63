"""How many drafts a step verifies, and which: the scheduler that consumes the probabilities.

Written anew after reading vLLM's adaptive verification (vllm/v1/worker/gpu/spec_decode/adaptive_verification.py,
release 0.32, `get_num_tokens` and `_assign_draft_token_budget`). As there, the budget is chosen from scores that are
one step old, a request that has none yet counts as certain, and the drafts are ranked by the scores of this step.
Old scores are not only what a CPU has in time: a budget that looks at this step's scores would let the tokens drawn
decide how many of them are verified, and that is not lossless.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..basis import Array

FRESH_SCORE = 1.0
"""Score of every draft of a request that no step has scored yet."""


def choose_budget(scores: Array, costs: Array) -> int:
    """The number of drafts with the most expected tokens per unit cost; the smallest of equals.

    With budget n over B requests, B + (sum of the n highest scores) tokens are expected: every request emits one token
    more than it has drafts accepted.

    Args:
        scores: [B, K] expected acceptance of each draft, the probability that it and all before it survive.
        costs: [B K + 1] cost of verifying 0..B K drafts beside the B requests' own tokens.

    >>> choose_budget(np.array([[0.9, 0.1]]), np.array([10.0, 11.0, 12.0]))
    1
    """
    best = np.sort(scores, axis=None)[::-1]
    expected = np.concatenate([[0.0], np.cumsum(best)]) + len(scores)
    return int(np.argmax(expected / costs))


def admit(scores: Array, budget: int) -> npt.NDArray[np.int64]:
    """How many drafts of each request are verified, [B]: the `budget` highest scores of all, earlier ones of equals.

    Scores never rise along a request, so what is admitted of a request is a prefix of its drafts.

    Args:
        scores: [B, K]; budget: 0..B K.

    >>> admit(np.array([[0.9, 0.2], [0.8, 0.5]]), 3)
    array([1, 2])
    """
    requests, k = scores.shape
    if budget >= requests * k:
        return np.full(requests, k, dtype=np.int64)
    order = np.argsort(-scores, axis=None, kind="stable")[:budget]
    return np.bincount(order // k, minlength=requests).astype(np.int64)
