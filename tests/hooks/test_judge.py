"""Which tables are believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.harness import KNOTS, PAIR, table

from accord.hooks.judge import Judge
from accord.learner.coefficients import MAX_TABLE_BYTES, CoefficientTable
from accord.learner.errors import InvalidValue, Reason, Refusal

JUDGE = Judge(PAIR.id, PAIR.k, KNOTS)


def changed(**values: Any) -> bytes:
    """A good table's JSON with some fields replaced; `prior.x` reaches into the prior row."""
    document = json.loads(table(3).to_json())
    for name, value in values.items():
        if name.startswith("prior_"):
            document["prior"][name.removeprefix("prior_")] = value
        else:
            document[name] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>Bad gateway</html>", Reason.SCHEMA),
        (b"", Reason.SCHEMA),
        (b"\xff\xfe", Reason.SCHEMA),
        (b"[" * 100_000, Reason.SCHEMA),
        (b"null", Reason.SCHEMA),
        (b'{"schema": 1}', Reason.SCHEMA),
        (changed(schema=2), Reason.SCHEMA),
        (changed(version=-1), Reason.SCHEMA),
        (changed(version="3"), Reason.SCHEMA),
        (changed(pair="somebody.else"), Reason.WRONG_PAIR),
        (changed(prior_slopes=[float("nan"), 0, 0]), Reason.NOT_FINITE),
        (changed().replace(b"0.6", b"1e999"), Reason.NOT_FINITE),
        (changed(prior_slopes=[-0.5, 0, 0]), Reason.OUT_OF_BOUNDS),
        (changed(prior_slopes=[1e9, 0, 0]), Reason.OUT_OF_BOUNDS),
        (changed(prior_slopes=[0.5]), Reason.SHAPE),
        (changed(prior_intercepts=[0.1] * 4, workloads={}), Reason.SHAPE),
        (changed(knots=[0.0, 3.0]), Reason.KNOTS),
        (b" " * (MAX_TABLE_BYTES + 1), Reason.SIZE),
    ],
)
def test_refused(body: bytes, reason: Reason) -> None:
    """What cannot be verified is refused with the kind of its fault."""
    with pytest.raises(Refusal) as caught:
        JUDGE.decode(body)
    assert caught.value.reason is reason


def test_good_table() -> None:
    """A good table comes through as it was published."""
    assert JUDGE.decode(table(3).to_json()).digest == table(3).digest


@given(st.binary(max_size=200) | st.integers(0, len(table(3).to_json()) - 1).map(lambda at: table(3).to_json()[:at]))
def test_garbage_is_a_refusal(body: bytes) -> None:
    """No bytes raise anything but a refusal."""
    with pytest.raises(Refusal):
        JUDGE.decode(body)


@pytest.mark.parametrize(
    ("served", "last", "expected"),
    [
        (table(1), None, True),
        (table(0, published_ms=0), None, False),
        (table(0, published_ms=0), table(5), False),
        (table(5), table(5), False),
        (table(6), table(5), True),
        (table(6, published_ms=1), table(5), True),
        (table(2, published_ms=1_800_000_000_000), table(5), True),
        (table(5, published_ms=1_800_000_000_000), table(5), True),
    ],
)
def test_order(served: CoefficientTable, last: CoefficientTable | None, expected: bool) -> None:
    """A higher version, or one that was published later, replaces the last; version 0 replaces nothing."""
    assert JUDGE.supersedes(served, last) is expected


@pytest.mark.parametrize("served", [table(4), table(5, published_ms=1), table(1)])
def test_stale(served: CoefficientTable) -> None:
    """A version from before the one in force is refused as stale."""
    with pytest.raises(Refusal) as caught:
        JUDGE.supersedes(served, table(5))
    assert caught.value.reason is Reason.STALE


def test_file(tmp_path: Path) -> None:
    """A table is read from a file, and a file that cannot be used is named."""
    path = tmp_path / "table.json"
    path.write_bytes(table(7).to_json())
    assert JUDGE.load("ACCORD_BOOTSTRAP", str(path)).version == 7
    path.write_bytes(b"{}")
    with pytest.raises(InvalidValue, match=r"ACCORD_BOOTSTRAP = .*table.json.*schema"):
        JUDGE.load("ACCORD_BOOTSTRAP", str(path))
    with pytest.raises(InvalidValue, match="No such file"):
        JUDGE.load("ACCORD_BOOTSTRAP", str(tmp_path / "nothing"))
