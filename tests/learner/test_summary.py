from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, Engine, dense_hessian, few, seeds, some

from accord.learner.errors import InvalidValue
from accord.learner.summary import RoundSummary


def rounds(seed: int, count: int, *, move: bool) -> list[RoundSummary]:
    """Rounds of one engine, each with a random choice of its workloads, at coefficients that may move."""
    engine, found = Engine(seed, keys=KEYS[:4]), []
    for _ in range(count):
        if move:
            engine.apply_random()
        full = engine.round(8, sketch=bool(engine.rng.integers(2)))
        chosen = engine.rng.permutation(4)[: engine.rng.integers(1, 5)]
        found.append(
            replace(
                full,
                workloads=tuple(full.workloads[i] for i in chosen),
                slopes=full.slopes[chosen],
                intercepts=full.intercepts[chosen],
                moments=full.moments.take(chosen),
                sketch=full.sketch and full.sketch.take(chosen),
            )
        )
    return found


def by_key(summary: RoundSummary) -> dict[str, dict[str, np.ndarray]]:
    """Every number of a summary by workload."""
    e0, e1 = summary.information()
    arrays = summary.moments.arrays() | {"e0": e0, "e1": e1, "slopes": summary.slopes, "intercepts": summary.intercepts}
    if summary.sketch is not None:
        arrays |= {"acceptance": summary.sketch.acceptance, "survival": summary.sketch.survival}
    return {key: {name: a[i] for name, a in arrays.items()} for i, key in enumerate(summary.workloads)}


def assert_same(one: RoundSummary, other: RoundSummary) -> None:
    """The same evidence about the same workloads, up to rounding."""
    first, second = by_key(one), by_key(other)
    assert first.keys() == second.keys()
    for key, arrays in first.items():
        assert arrays.keys() == second[key].keys()
        for name, array in arrays.items():
            np.testing.assert_allclose(array, second[key][name], rtol=1e-8, atol=1e-7, err_msg=f"{key} {name}")
    assert (one.first_seq, one.last_seq, one.steps, one.version) == (
        other.first_seq,
        other.last_seq,
        other.steps,
        other.version,
    )


@given(seeds, st.booleans())
@some
def test_merging_is_associative(seed: int, move: bool) -> None:
    """Whatever the order of merging, the result is the same up to rounding."""
    a, b, c = rounds(seed, 3, move=move)
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)))


@given(seeds, st.integers(2, 5), st.booleans())
@some
def test_merged_information_is_the_sum_of_the_parts(seed: int, count: int, move: bool) -> None:
    """Hessian, information form, counts, losses and sketches of a merge are the sums over its parts."""
    parts = rounds(seed, count, move=move)
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert merged.labels == sum(part.labels for part in parts)
    assert merged.rounds == count
    found = by_key(merged)
    for key in found:
        own = [by_key(part)[key] for part in parts if key in part.workloads]
        for name in ("A", "B", "c", "n", "y", "loss", "e0", "e1"):
            expected = sum(arrays[name] for arrays in own)
            np.testing.assert_allclose(found[key][name], expected, rtol=1e-8, atol=1e-7, err_msg=name)
        for name in ("acceptance", "survival"):
            expected = sum(arrays[name] for arrays in own if name in arrays)
            np.testing.assert_allclose(found[key].get(name, 0.0), expected, rtol=1e-12, atol=1e-12, err_msg=name)


@given(seeds)
@some
def test_merging_at_equal_coefficients_adds_raw_gradients(seed: int) -> None:
    """When nothing moved between two rounds their gradients add up exactly, as if it had been one round."""
    two = Engine(seed)
    merged = two.round(6).merge(two.round(6))
    whole = Engine(seed).round(12)
    for name, array in merged.moments.arrays().items():
        np.testing.assert_allclose(array, getattr(whole.moments, name), rtol=1e-12, atol=1e-12, err_msg=name)


@given(seeds)
@few
def test_gradient_is_re_expressed_at_the_later_coefficients(seed: int) -> None:
    """A merge carries the later coefficients and the earlier gradient moved there along the earlier Hessian."""
    engine = Engine(seed)
    first = engine.round(10)
    engine.apply_random()
    second = engine.round(10)
    merged = first.merge(second)
    assert np.array_equal(merged.slopes, second.slopes)
    for w in range(2):
        before = np.append(first.slopes[w], first.intercepts[w])
        after = np.append(second.slopes[w], second.intercepts[w])
        g = [np.append(s.moments.g0[w], s.moments.g1[w]) for s in (first, second, merged)]
        moved = g[0] - dense_hessian(first.moments, first.basis, w) @ (after - before)
        np.testing.assert_allclose(g[2], moved + g[1], rtol=1e-9, atol=1e-8)


def test_a_workload_of_one_part_keeps_its_numbers() -> None:
    """What only one of the parts saw comes through unchanged."""
    engine = Engine(4)
    full = engine.round(10)
    first = replace(
        full,
        workloads=full.workloads[:1],
        slopes=full.slopes[:1],
        intercepts=full.intercepts[:1],
        moments=full.moments.take([0]),
        sketch=None,
    )
    engine.apply_random()
    second = engine.round(10)
    second = replace(
        second,
        workloads=second.workloads[1:],
        slopes=second.slopes[1:],
        intercepts=second.intercepts[1:],
        moments=second.moments.take([1]),
        sketch=None,
    )
    merged = first.merge(second)
    assert merged.workloads == (*first.workloads, *second.workloads)
    assert np.array_equal(merged.moments.g1, np.concatenate([first.moments.g1, second.moments.g1]))
    assert merged.sketch is None


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("first_seq", {"first_seq": 3, "last_seq": 3}),
        ("first_seq", {"first_seq": 1, "last_seq": 1}),
        ("pair", {"pair": "another"}),
        ("engine", {"engine": "host-2/0"}),
        ("boot", {"boot": "f" * 16}),
        ("knots", {"knots": (0.0, 3.0)}),
        ("k", {"k": 4}),
    ],
)
def test_refuses_to_merge_what_does_not_follow(field: str, change: dict[str, Any]) -> None:
    """Only the next rounds of the same boot of the same engine and pair can be merged; the fault is named."""
    engine = Engine(1)
    first, second = engine.round(2), engine.round(2)
    with pytest.raises(InvalidValue, match=field):
        first.merge(replace(second, **change))
