from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, bases, many, row, seeds, some

from accord.learner.basis import SplineBasis
from accord.learner.coefficients import COEFFICIENT_LIMIT, MAX_TABLE_BYTES, Coefficients, CoefficientTable
from accord.learner.errors import InvalidValue, Reason, Refusal


def table(seed: int = 0, knots: tuple[float, ...] = (0.0, 2.0), k: int = 3, workloads: int = 2) -> CoefficientTable:
    """A table of random rows."""
    rng, basis = np.random.default_rng(seed), SplineBasis(knots)
    rows = {key: row(rng, k, basis, 0.1) for key in KEYS[:workloads]}
    return CoefficientTable(PAIR, 7, row(rng, k, basis), rows, knots, 1_700_000_000_000)


def document(**changes: Any) -> bytes:
    """The JSON of a valid table with some members replaced."""
    return json.dumps(json.loads(table().to_json()) | changes).encode()


@given(bases, seeds, st.integers(1, 9), st.integers(0, 5))
@some
def test_a_table_survives_its_bytes(basis: SplineBasis, seed: int, k: int, workloads: int) -> None:
    """Every number comes back to the bit, and the same table gives the same bytes and digest."""
    first = table(seed, basis.knots, k, workloads)
    again = CoefficientTable.from_json(first.to_json())
    assert again.to_json() == first.to_json()
    assert again.digest == first.digest
    for key in (*first.workloads, "unseen:hot"):
        assert np.array_equal(again.row(key).slopes, first.row(key).slopes)
        assert np.array_equal(again.row(key).intercepts, first.row(key).intercepts)
        assert again.row(key).request_variance == first.row(key).request_variance


@given(bases, seeds)
@some
def test_probability_never_falls_with_the_feature(basis: SplineBasis, seed: int) -> None:
    """Whatever coefficients are admitted, a more confident draft is never predicted less likely to be accepted."""
    admitted = row(np.random.default_rng(seed), 1, basis)
    p = admitted.probability(basis, np.linspace(-40.0, 40.0, 321)[:, None])[:, 0]
    assert np.all(np.diff(p) >= -1e-12)


def test_an_unseen_workload_has_the_prior_row() -> None:
    """A key that is not in the table is served the prior row."""
    t = table()
    assert t.row("never:hot") is t.prior


@pytest.mark.parametrize(
    ("slopes", "intercepts", "variance", "reason"),
    [
        ([-0.1], [0.0], 0.0, Reason.OUT_OF_BOUNDS),
        ([0.5, -0.6], [0.0], 0.0, Reason.OUT_OF_BOUNDS),
        ([math.nan], [0.0], 0.0, Reason.NOT_FINITE),
        ([0.5], [math.inf], 0.0, Reason.NOT_FINITE),
        ([0.5], [COEFFICIENT_LIMIT * 1.01], 0.0, Reason.OUT_OF_BOUNDS),
        ([[0.5]], [0.0], 0.0, Reason.SHAPE),
        (["x"], [0.0], 0.0, Reason.SCHEMA),
        ([10**400], [0.0], 0.0, Reason.SCHEMA),
        ([0.5], [0.0], -0.1, Reason.OUT_OF_BOUNDS),
        ([0.5], [0.0], math.nan, Reason.OUT_OF_BOUNDS),
        ([0.5], [0.0], True, Reason.OUT_OF_BOUNDS),
    ],
)
def test_refuses_coefficients_that_cannot_be_served(
    slopes: Any, intercepts: Any, variance: Any, reason: Reason
) -> None:
    """Each fault of a row has its own reason."""
    with pytest.raises(InvalidValue) as caught:
        Coefficients(slopes, intercepts, variance)
    assert caught.value.reason is reason


def test_coefficients_cannot_be_changed_behind_a_table() -> None:
    """The arrays of a row are copies that nobody can write to."""
    slopes = np.array([0.5])
    kept = Coefficients(slopes, np.zeros(1))
    slopes[0] = 9.0
    assert kept.slopes[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        kept.slopes[0] = 1.0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Reason.SCHEMA),
        (b"[]", Reason.SCHEMA),
        (b"\xff\xfe", Reason.SCHEMA),
        (b"[" * 100_000, Reason.SCHEMA),
        (b"9" * 5_000, Reason.SCHEMA),
        (b" " * (MAX_TABLE_BYTES + 1), Reason.SIZE),
        (b'{"schema":NaN}', Reason.NOT_FINITE),
        (document(schema=2), Reason.SCHEMA),
        (document(workloads=[]), Reason.SCHEMA),
        (document(version=-1), Reason.SCHEMA),
        (document(version=1.5), Reason.SCHEMA),
        (document(pair="../etc"), Reason.SCHEMA),
        (document(knots=[]), Reason.SHAPE),
        (document(knots=[2, 0]), Reason.SCHEMA),
        (document(workloads={f"w{i}:hot": {} for i in range(65)}), Reason.SIZE),
        (document(workloads={"x:hot": {"slopes": [0.1, 0, 0], "intercepts": [0]}}), Reason.SHAPE),
        (document(workloads={"x": {"slopes": [0.1, 0, 0], "intercepts": [0, 0, 0]}}), Reason.SCHEMA),
        (document(prior={"slopes": [0.1, -0.5, 0], "intercepts": [0, 0, 0]}), Reason.OUT_OF_BOUNDS),
        (document(prior={"slopes": {}, "intercepts": [0]}), Reason.SCHEMA),
        (document(prior=None), Reason.SCHEMA),
        (document().replace(b'"request_variance": 0.0', b'"request_variance": 1e999'), Reason.OUT_OF_BOUNDS),
    ],
)
def test_each_corruption_of_a_table_has_its_reason(body: bytes, reason: Reason) -> None:
    """A table that cannot be verified is refused with the kind of fault."""
    with pytest.raises(Refusal) as caught:
        CoefficientTable.from_json(body)
    assert caught.value.reason is reason


@given(st.data())
@many
def test_damaged_bytes_are_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    """Any damage to a table's bytes is either a table again or a refusal."""
    body = bytearray(table().to_json())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(Refusal):
        CoefficientTable.from_json(bytes(body))


def test_rows_must_fit_each_other() -> None:
    """A row with another K or F than the prior row is refused by its key."""
    prior = Coefficients(np.array([0.5]), np.zeros(3))
    for other in (Coefficients(np.array([0.5]), np.zeros(2)), Coefficients(np.array([0.5, 0.0]), np.zeros(3))):
        with pytest.raises(InvalidValue, match="chat:hot"):
            CoefficientTable(PAIR, 1, prior, {"chat:hot": other}, ())
