# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator"
"""What the verification of one decode step teaches, as one kernel, and the assignment of request slots.

Labels: accepted = max(num_sampled - 1, 0), admitted = accepted + num_rejected; position k has a label when
k <= accepted and k < admitted, and it is 1 when k < accepted. A position whose feature is NaN teaches nothing.

A request's row of effects is R, V, and R and V as they were when `predict` used them. The programs that sum read the
latter, the ones that update write the former; so both can run side by side, in one launch.
"""

import triton
import triton.language as tl

from .device_math import basis_value, both_sigmoids, log_odds, shift, softplus

LOG2_DISCOUNT = tl.constexpr(-0.029146345659516508)
"""log2 of `request_effect.DISCOUNT`; the test of the request effects fails when they differ."""


@triton.jit
def verdicts(idx_mapping_ptr, sampled_ptr, rejected_ptr, at, rows):
    """Request slot (0 for padding), whether the row is real, accepted and admitted, of each lane."""
    real = at < rows
    request = tl.load(idx_mapping_ptr + at, mask=real, other=-1).to(tl.int64)
    real = real & (request >= 0)
    accepted = tl.maximum(tl.load(sampled_ptr + at, mask=real, other=0).to(tl.int32) - 1, 0)
    admitted = accepted + tl.load(rejected_ptr + at, mask=real, other=0).to(tl.int32)
    return tl.where(real, request, 0), real, accepted, admitted


@triton.jit
def add_moments(
    workload,
    k,
    sums_ptr,
    theta_ptr,
    constants_ptr,
    features_ptr,
    workloads_ptr,
    effects_ptr,
    idx_mapping_ptr,
    sampled_ptr,
    rejected_ptr,
    rows,
    K: tl.constexpr,
    F: tl.constexpr,
    GRID: tl.constexpr,
    SUMS: tl.constexpr,
    PADDED_SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sums position k over the requests of a workload. One program alone owns sums[workload, k].

    So there are no atomics, and the same step gives the same sums to the bit.
    """
    at = tl.arange(0, BLOCK)
    request, real, accepted, admitted = verdicts(idx_mapping_ptr, sampled_ptr, rejected_ptr, at, rows)
    mine = real & (tl.load(workloads_ptr + request) == workload)
    f = tl.load(features_ptr + request * K + k)
    labelled = mine & (k <= accepted) & (k < admitted) & (f == f)
    labels = tl.sum(tl.where(labelled, 1.0, 0.0), axis=0)
    if labels > 0.0:
        column = tl.arange(0, PADDED_SUMS)
        own = sums_ptr + (workload * K + k) * SUMS + column
        before = tl.load(own, mask=column < SUMS, other=0.0)
        f = tl.where(labelled, f, 0.0)
        y = k < accepted
        z = log_odds(theta_ptr + workload * (F + K + 1), constants_ptr, f, k, F)
        p, q = both_sigmoids(z)
        residual, curvature = tl.load(effects_ptr + request * 4 + 2), tl.load(effects_ptr + request * 4 + 3)
        weight = 1.0 / (1.0 + tl.load(constants_ptr + F - 1 + GRID) * curvature)
        v = tl.where(labelled, weight * p * q, 0.0)
        r = tl.where(labelled, weight * tl.where(y, q, -p), 0.0)

        C: tl.constexpr = F * (F + 1) // 2 + F
        total = tl.where(column == C, tl.sum(v, axis=0), 0.0)
        for i in tl.static_range(F):
            x = basis_value(f, constants_ptr, i)
            vx = v * x
            total = tl.where(column == F * (F + 1) // 2 + i, tl.sum(vx, axis=0), total)
            total = tl.where(column == C + 1 + i, tl.sum(r * x, axis=0), total)
            for j in tl.static_range(i, F):
                a = tl.sum(vx * basis_value(f, constants_ptr, j), axis=0)
                total = tl.where(column == i * F - i * (i - 1) // 2 + j - i, a, total)
        total = tl.where(column == C + F + 1, tl.sum(r, axis=0), total)
        total = tl.where(column == C + F + 2, labels, total)
        total = tl.where(column == C + F + 3, tl.sum(tl.where(labelled & y, 1.0, 0.0), axis=0), total)

        for g in tl.static_range(GRID):
            shifted = z + shift(residual, curvature, tl.load(constants_ptr + F - 1 + g))
            loss = tl.where(labelled, softplus(tl.where(y, -shifted, shifted)), 0.0)
            total = tl.where(column == C + F + 4 + g, tl.sum(loss, axis=0), total)
        tl.store(own, before + total, mask=column < SUMS)


@triton.jit
def walk_requests(
    part,
    acceptance_ptr,
    survival_ptr,
    effects_ptr,
    theta_ptr,
    constants_ptr,
    features_ptr,
    workloads_ptr,
    idx_mapping_ptr,
    sampled_ptr,
    rejected_ptr,
    rows,
    K: tl.constexpr,
    F: tl.constexpr,
    BINS: tl.constexpr,
    SURVIVAL_BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each lane walks one request's positions, fills the sketches, and updates its R and V.

    R and V are summed within one lane, so that every rank computes them alike to the bit. The sketches take atomics:
    their counts are exact, and only their sums of f and of survival depend on the order, in the last digits.
    """
    at = part * BLOCK + tl.arange(0, BLOCK)
    request, real, accepted, admitted = verdicts(idx_mapping_ptr, sampled_ptr, rejected_ptr, at, rows)
    workload = tl.load(workloads_ptr + request).to(tl.int64)
    theta = theta_ptr + workload * (F + K + 1)
    effects = effects_ptr + request * 4
    u = shift(tl.load(effects + 2), tl.load(effects + 3), tl.load(theta + F + K))

    survival = tl.full([BLOCK], 1.0, tl.float32)
    labels = tl.zeros([BLOCK], tl.float32)
    r_sum = tl.zeros([BLOCK], tl.float32)
    v_sum = tl.zeros([BLOCK], tl.float32)
    known = real
    for k in range(K):
        f = tl.load(features_ptr + request * K + k)
        finite = f == f
        known = known & finite
        verified = real & finite & (k < admitted)
        labelled = verified & (k <= accepted)
        f = tl.where(finite, f, 0.0)
        y = k < accepted
        one = tl.where(y, 1.0, 0.0)
        z = log_odds(theta, constants_ptr, f, k, F)
        p, q = both_sigmoids(z)
        labels += tl.where(labelled, 1.0, 0.0)
        r_sum += tl.where(labelled, tl.where(y, q, -p), 0.0)
        v_sum += tl.where(labelled, p * q, 0.0)

        # 4 f is exact, so a feature on the edge of a bin falls where float64 puts it.
        bin_ = tl.minimum(tl.maximum(tl.floor(f * 4.0).to(tl.int32) + 16, 0), BINS - 1)
        cell = acceptance_ptr + ((workload * K + k) * BINS + bin_) * 3
        tl.atomic_add(cell, tl.full([BLOCK], 1.0, tl.float32), mask=labelled, sem="relaxed")
        tl.atomic_add(cell + 1, one, mask=labelled & y, sem="relaxed")
        tl.atomic_add(cell + 2, f, mask=labelled, sem="relaxed")

        shown, _ = both_sigmoids(z + u)
        survival *= shown
        verified = verified & known
        bin_ = tl.minimum(tl.maximum((survival * SURVIVAL_BINS).to(tl.int32), 0), SURVIVAL_BINS - 1)
        cell = survival_ptr + ((workload * K + k) * SURVIVAL_BINS + bin_) * 3
        tl.atomic_add(cell, tl.full([BLOCK], 1.0, tl.float32), mask=verified, sem="relaxed")
        tl.atomic_add(cell + 1, survival, mask=verified, sem="relaxed")
        tl.atomic_add(cell + 2, one, mask=verified & y, sem="relaxed")

    kept = tl.exp2(labels * LOG2_DISCOUNT)
    taught = real & (labels > 0.0)
    tl.store(effects, kept * tl.load(effects) + r_sum, mask=taught)
    tl.store(effects + 1, kept * tl.load(effects + 1) + v_sum, mask=taught)


@triton.jit(do_not_specialize=["rows"])
def step_kernel(
    sums_ptr,
    acceptance_ptr,
    survival_ptr,
    effects_ptr,
    theta_ptr,
    constants_ptr,
    features_ptr,
    workloads_ptr,
    idx_mapping_ptr,
    sampled_ptr,
    rejected_ptr,
    rows,
    W: tl.constexpr,
    K: tl.constexpr,
    F: tl.constexpr,
    GRID: tl.constexpr,
    SUMS: tl.constexpr,
    PADDED_SUMS: tl.constexpr,
    BINS: tl.constexpr,
    SURVIVAL_BINS: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
):
    """Grid (W K + ceil(rows / PART)): the first programs each own sums[w, k], the others walk PART requests each."""
    program = tl.program_id(0)
    if program < W * K:
        add_moments(
            program // K,
            program % K,
            sums_ptr,
            theta_ptr,
            constants_ptr,
            features_ptr,
            workloads_ptr,
            effects_ptr,
            idx_mapping_ptr,
            sampled_ptr,
            rejected_ptr,
            rows,
            K,
            F,
            GRID,
            SUMS,
            PADDED_SUMS,
            BLOCK,
        )
    else:
        walk_requests(
            program - W * K,
            acceptance_ptr,
            survival_ptr,
            effects_ptr,
            theta_ptr,
            constants_ptr,
            features_ptr,
            workloads_ptr,
            idx_mapping_ptr,
            sampled_ptr,
            rejected_ptr,
            rows,
            K,
            F,
            BINS,
            SURVIVAL_BINS,
            PART,
        )


@triton.jit(do_not_specialize=["count"])
def assign_kernel(workloads_ptr, effects_ptr, staged_ptr, count, FRESH: tl.constexpr, BLOCK: tl.constexpr):
    """Grid (ceil(count / BLOCK)): gives request slots staged[2 i] to workloads staged[2 i + 1], forgetting R and V."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    request = tl.load(staged_ptr + 2 * at, mask=real, other=0)
    workload = tl.load(staged_ptr + 2 * at + 1, mask=real, other=0)
    tl.store(workloads_ptr + request, workload, mask=real)
    if FRESH:
        nothing = tl.zeros([BLOCK], tl.float32)
        for i in tl.static_range(4):
            tl.store(effects_ptr + 4 * request + i, nothing, mask=real)
