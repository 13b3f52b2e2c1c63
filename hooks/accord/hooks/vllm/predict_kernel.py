# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator"
"""From draft logits to the feature logit(q_max) and the probability of acceptance, in one kernel.

With l the logits over the temperature T and m their mode, logit(q_max) = -log sum_{x != m} exp(l_x - l_m): the
complement log-sum-exp. The mode's own term is left out of the sum, never subtracted from it, because 1 + 1e-9 - 1 has
no digits left in float32 while a draft that sure is common. Differences are taken before the division by T, so that
large logits lose nothing either.
"""

import triton
import triton.language as tl

from .device_math import both_sigmoids, log_odds, shift

LOG2_E = tl.constexpr(1.4426950408889634)
LIMIT = tl.constexpr(40.0)


@triton.jit
def mode_and_rest(x, inside, scale):
    """Of the lanes marked `inside`: the largest x, and the sum of exp2((x - largest) * scale) over all but one mode.

    Lanes that tie with the mode are counted instead of summed, and one is left out of the count; so the sum holds no
    term that has to be taken out again, and an infinite mode needs no special case.
    """
    mode = tl.max(x, axis=0)
    tied = x == mode
    rest = tl.sum(tl.where(tied, 0.0, tl.exp2((x - mode) * scale)), axis=0)
    ties = tl.sum(tl.where(tied & inside, 1.0, 0.0), axis=0)
    return mode, rest + (ties - 1.0)


@triton.jit
def combine(modes, rests, inside, scale):
    """The complement sum of a whole row from those of its splits, NaN when the row defines no distribution."""
    mode = tl.max(modes, axis=0)
    tied = modes == mode
    # Where a split's mode is not the row's, that mode is an ordinary term again: the 1 that its rest left out.
    weighed = tl.where(tied, rests, (rests + 1.0) * tl.exp2((modes - mode) * scale))
    leaders = tl.sum(tl.where(tied & inside, 1.0, 0.0), axis=0)
    rest = tl.sum(tl.where(inside, weighed, 0.0), axis=0) + (leaders - 1.0)
    return tl.where(mode == float("-inf"), float("nan"), rest)


@triton.jit
def finish(
    confidence_ptr,
    confidence_stride,
    features_ptr,
    effects_ptr,
    workloads_ptr,
    theta_ptr,
    constants_ptr,
    draft_step_ptr,
    row,
    request,
    rest,
    K: tl.constexpr,
    F: tl.constexpr,
    STEP_PER_ROW: tl.constexpr,
):
    """Stores the feature of a row, its probability of acceptance, and the effects that it was predicted with.

    A row without a distribution (NaN, or every logit -inf) is predicted as if f = 0, and stores NaN, which teaches
    nothing later.
    """
    if STEP_PER_ROW:
        k = tl.load(draft_step_ptr + row).to(tl.int64)
        place = row // K
    else:
        k = tl.load(draft_step_ptr).to(tl.int64)
        place = row
    # exp(-41) is beyond the clip already; the floor only keeps log away from 0.
    feature = -tl.log(tl.maximum(rest, 1e-18))
    feature = tl.minimum(tl.maximum(feature, -LIMIT), LIMIT)
    broken = rest != rest
    tl.store(features_ptr + request * K + k, tl.where(broken, float("nan"), feature))
    theta = theta_ptr + tl.load(workloads_ptr + request).to(tl.int64) * (F + K + 1)
    effects = effects_ptr + request * 4
    residual, curvature = tl.load(effects), tl.load(effects + 1)
    z = log_odds(theta, constants_ptr, tl.where(broken, 0.0, feature), k, F)
    z += shift(residual, curvature, tl.load(theta + F + K))
    p, _ = both_sigmoids(z)
    tl.store(confidence_ptr + place * confidence_stride + k, p)
    tl.store(effects + 2, residual)
    tl.store(effects + 3, curvature)


@triton.jit
def predict_kernel(
    confidence_ptr,
    confidence_stride,
    features_ptr,
    effects_ptr,
    workloads_ptr,
    theta_ptr,
    constants_ptr,
    partials_ptr,
    arrived_ptr,
    logits_ptr,
    logits_stride,
    idx_mapping_ptr,
    idx_mapping_stride,
    draft_step_ptr,
    temperature_ptr,
    vocab_size,
    K: tl.constexpr,
    F: tl.constexpr,
    STEP_PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
):
    """Grid (SPLITS, rows). The program that finishes last among those of a row combines them and predicts.

    The combination reads the partial sums in a fixed order, so it does not depend on which program comes last.
    """
    split = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    request = tl.load(idx_mapping_ptr + row * idx_mapping_stride).to(tl.int64)
    if request < 0:
        return
    temperature = tl.load(temperature_ptr + request).to(tl.float32)
    scale = LOG2_E / tl.where(temperature > 0.0, temperature, 1.0)

    at = split * BLOCK + tl.arange(0, BLOCK)
    inside = at < vocab_size
    x = tl.load(logits_ptr + row * logits_stride + at, mask=inside, other=float("-inf")).to(tl.float32)
    mode, rest = mode_and_rest(x, inside, scale)

    partial = partials_ptr + row * (2 * SPLITS)
    tl.store(partial + split, mode)
    tl.store(partial + SPLITS + split, rest)
    # The barriers order this program's stores before its arrival is seen, and its loads after the last arrival.
    tl.debug_barrier()
    arrived = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel")
    tl.debug_barrier()
    if arrived == SPLITS - 1:
        tl.store(arrived_ptr + row, 0)
        s = tl.arange(0, PADDED_SPLITS)
        real = s < SPLITS
        modes = tl.load(partial + s, mask=real, other=float("-inf"), cache_modifier=".cg")
        rests = tl.load(partial + SPLITS + s, mask=real, other=0.0, cache_modifier=".cg")
        finish(
            confidence_ptr,
            confidence_stride,
            features_ptr,
            effects_ptr,
            workloads_ptr,
            theta_ptr,
            constants_ptr,
            draft_step_ptr,
            row,
            request,
            combine(modes, rests, real, scale),
            K,
            F,
            STEP_PER_ROW,
        )
