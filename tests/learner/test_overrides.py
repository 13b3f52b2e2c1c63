from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, knot_lists, row, seeds, some

from accord.learner.basis import SplineBasis
from accord.learner.coefficients import COEFFICIENT_LIMIT, MAX_WORKLOADS, Coefficients, CoefficientTable
from accord.learner.errors import InvalidValue
from accord.learner.overrides import (
    Kind,
    Override,
    Rows,
    Scope,
    compose,
    decode_overrides,
    encode_overrides,
    in_force,
    next_expiry,
    same_rows,
)

NOW = 1_000_000


def override(scope: Scope, kind: Kind, **values: Any) -> Override:
    """An override without an end, unless told otherwise."""
    base: dict[str, Any] = {"reason": "r", "actor": "a", "created_ms": 1, "revision": 1}
    return Override(scope, kind, **{**base, **values})


def table(seed: int, k: int, knots: tuple[float, ...], keys: tuple[str, ...]) -> CoefficientTable:
    """Random rows."""
    rng, basis = np.random.default_rng(seed), SplineBasis(knots)
    rows = {key: row(rng, k, basis, 0.1) for key in keys}
    return CoefficientTable(PAIR, 3, row(rng, k, basis), rows, knots, 5)


@st.composite
def cases(draw: st.DrawFn) -> tuple[CoefficientTable, dict[Scope, Override]]:
    """A learnt table, and overrides of any kinds for seen and unseen workloads and the pair, some of them over."""
    k, knots = draw(st.integers(1, 4)), draw(knot_lists)
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=True))
    learnt = table(draw(seeds), k, knots, tuple(keys))
    scopes = draw(st.lists(st.sampled_from([None, *KEYS]), max_size=8, unique=True))
    made: dict[Scope, Override] = {}
    for scope in scopes:
        kind = draw(st.sampled_from(list(Kind)))
        end = draw(st.sampled_from([None, NOW - 1, NOW, NOW + 1]))
        other = table(draw(seeds), k, knots, tuple(draw(st.lists(st.sampled_from(KEYS), max_size=4, unique=True))))
        values: dict[str, Any] = {"coefficients": other.prior}
        if kind is Kind.SHIFT:
            values = {"shift": draw(st.floats(-40.0, 40.0))}
        elif scope is None and kind is not Kind.PIN:
            values = {"rows": Rows.of(other)}
        made[scope] = override(scope, kind, expires_ms=end, token=draw(st.sampled_from([None, "t"])), **values)
    return learnt, made


@given(cases())
@some
def test_every_row_is_what_its_override_says(case: tuple[CoefficientTable, dict[Scope, Override]]) -> None:
    """A workload's own override decides its row from the learnt one, else the pair's does, else it stays as learnt."""
    learnt, overrides = case
    composed = compose(learnt, overrides, NOW)
    assert (composed.version, composed.published_ms, composed.k) == (learnt.version, learnt.published_ms, learnt.k)
    alive = in_force(overrides, NOW)
    assert all(item.expires_ms is None or item.expires_ms > NOW for item in alive.values())
    for key in [*KEYS, "unheard:hot"]:
        item = alive.get(key) or alive.get(None)
        found, was = composed.row(key), learnt.row(key)
        if item is None:
            expected = was
        elif item.rows is not None:
            expected = item.rows.workloads.get(key, item.rows.prior)
        elif item.coefficients is not None:
            expected = item.coefficients
        else:
            shifted = [min(40.0, max(-40.0, b + (item.shift or 0.0))) for b in was.intercepts.tolist()]
            expected = replace(was, intercepts=np.array(shifted))
        assert found.to_dict() == expected.to_dict()
    assert CoefficientTable.from_json(composed.to_json()).to_json() == composed.to_json()


@given(cases())
@some
def test_composing_twice_and_storing_between_changes_nothing(
    case: tuple[CoefficientTable, dict[Scope, Override]],
) -> None:
    """Composition is a pure function, and overrides survive their bytes to the bit."""
    learnt, overrides = case
    before = learnt.to_json()
    again = decode_overrides(encode_overrides(overrides))
    assert encode_overrides(again) == encode_overrides(overrides)
    assert compose(learnt, again, NOW).to_json() == compose(learnt, overrides, NOW).to_json()
    assert learnt.to_json() == before


@given(cases())
@some
def test_without_overrides_nothing_changes(case: tuple[CoefficientTable, dict[Scope, Override]]) -> None:
    """No override, or none in force any more, serves the learnt bytes."""
    learnt, overrides = case
    assert compose(learnt, {}, NOW).to_json() == learnt.to_json()
    ended = {scope: replace(item, expires_ms=NOW) for scope, item in overrides.items()}
    assert compose(learnt, ended, NOW).to_json() == learnt.to_json()
    assert same_rows(compose(learnt, ended, NOW), replace(learnt, version=9, published_ms=77))


def test_a_shift_is_bounded_like_any_coefficient() -> None:
    """However far a shift goes, what is served stays within what engines accept."""
    learnt = CoefficientTable(PAIR, 1, Coefficients([0.5], [30.0, -30.0]), {}, ())
    up = compose(learnt, {None: override(None, Kind.SHIFT, shift=40.0)}, 0)
    assert up.prior.intercepts.tolist() == [COEFFICIENT_LIMIT, 10.0]


def test_more_rows_than_engines_take() -> None:
    """Of more than 64 rows the overridden ones stay, and the table stays one that engines accept."""
    keys = tuple(f"w{number:02}:hot" for number in range(MAX_WORKLOADS))
    learnt = table(1, 2, (), keys)
    pin = override("aa:hot", Kind.PIN, coefficients=learnt.prior)
    composed = compose(learnt, {"zz:hot": replace(pin, scope="zz:hot"), "aa:hot": pin}, 0)
    assert len(composed.workloads) == MAX_WORKLOADS
    assert {"aa:hot", "zz:hot", "w00:hot", "w61:hot"} <= set(composed.workloads)
    assert composed.row("w63:hot") == composed.prior


def test_a_frozen_pair_serves_a_new_workload_the_frozen_prior() -> None:
    """What is learnt after a freeze, a new workload included, changes nothing that is served."""
    before = table(1, 2, (), KEYS[:2])
    frozen = {None: override(None, Kind.FREEZE, rows=Rows.of(before))}
    assert same_rows(compose(table(2, 2, (), KEYS[:5]), frozen, 0), before)


def test_next_expiry() -> None:
    """The earliest end counts; overrides without an end have none."""
    shift = override(None, Kind.SHIFT, shift=0.0)
    assert next_expiry([]) is None
    assert next_expiry([shift]) is None
    assert next_expiry([shift, replace(shift, expires_ms=9), replace(shift, expires_ms=7)]) == 7


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"shift": float("nan")}, "shift"),
        ({"shift": float("inf")}, "shift"),
        ({"shift": -40.1}, "shift"),
        ({"shift": True}, "shift"),
        ({"shift": None}, "kind"),
        ({"shift": 1.0, "coefficients": Coefficients([1.0], [0.0])}, "kind"),
        ({"shift": 1.0, "reason": ""}, "reason"),
        ({"shift": 1.0, "reason": "\n "}, "reason"),
        ({"shift": 1.0, "reason": "x" * 501}, "reason"),
        ({"shift": 1.0, "reason": "\ud800"}, "reason"),
        ({"shift": 1.0, "actor": "a\x1b[31m"}, "actor"),
        ({"shift": 1.0, "actor": 5}, "actor"),
        ({"shift": 1.0, "created_ms": -1}, "created_ms"),
        ({"shift": 1.0, "expires_ms": 1 << 53}, "expires_ms"),
        ({"shift": 1.0, "revision": True}, "revision"),
        ({"shift": 1.0, "of_version": 1.5}, "of_version"),
        ({"shift": 1.0, "scope": "code"}, "workload"),
    ],
)
def test_a_malformed_override_is_named(values: dict[str, Any], field: str) -> None:
    """An override that says too little, or what nobody may serve, names the field."""
    with pytest.raises(InvalidValue) as caught:
        override(values.pop("scope", None), Kind.SHIFT, **values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b"[null]",
        b"[" * 10_000,
        b"\xff",
        b'[{"scope": null}]',
        json.dumps([override(None, Kind.SHIFT, shift=1.0).to_dict()] * 2).encode(),
        json.dumps([{**override(None, Kind.SHIFT, shift=1.0).to_dict(), "shift": 1e9}]).encode(),
        json.dumps([{**override(None, Kind.SHIFT, shift=1.0).to_dict(), "kind": "melt"}]).encode(),
        json.dumps([{**override(None, Kind.SHIFT, shift=1.0).to_dict(), "rows": [1]}]).encode(),
    ],
)
def test_spoilt_bytes_are_a_typed_error(body: bytes) -> None:
    """Whatever somebody wrote over the overrides is InvalidValue, never another exception."""
    with pytest.raises(InvalidValue):
        decode_overrides(body)


def test_no_bytes_are_no_overrides() -> None:
    """A pair that nobody has touched has none."""
    assert decode_overrides(None) == {}
