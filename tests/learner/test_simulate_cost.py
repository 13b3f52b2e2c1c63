"""Costs of a step: the roofline, measured tables, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import some

from accord.learner.errors import InvalidValue
from accord.learner.simulate.cost import MAX_TABLE_BYTES, Measured, Roofline

POINTS = [[1, 8.0], [32, 12.0], [64, 14.0]]


def written(folder: Path, name: str, text: str | bytes) -> Path:
    """A file of that content."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@some
@given(st.floats(0.01, 100.0), st.floats(0.0, 10.0), st.floats(0.0, 300.0))
def test_a_roofline_is_flat_and_then_linear(base: float, slope: float, knee: float) -> None:
    """Every entry is base + slope max(tokens - knee, 0)."""
    table = Roofline(base, slope, knee).table(300)
    for tokens in (0, 1, 150, 300):
        assert table[tokens] == pytest.approx(base + slope * max(tokens - knee, 0.0))
    assert table.shape == (301,)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("cost-base", {"base": 0.0}),
        ("cost-base", {"base": float("inf")}),
        ("cost-slope", {"slope": -0.1}),
        ("cost-slope", {"slope": float("nan")}),
        ("cost-knee", {"knee": -1.0}),
    ],
)
def test_an_impossible_roofline_is_refused(field: str, values: dict[str, float]) -> None:
    """A value that gives no positive, finite cost is InvalidValue naming the option."""
    with pytest.raises(InvalidValue, match=field):
        Roofline(**values)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "tokens,cost\n1,8\n32,12\n64,14\n"),
        ("b.csv", "1, 8.0\r\n32, 12\r\n\r\n64, 14"),
        ("bom.csv", "\ufefftokens,cost\n1,8\n32,12\n64,14\n"),
        ("a.json", json.dumps(POINTS)),
        ("b.JSON", json.dumps([{"tokens": t, "cost": c} for t, c in POINTS])),
        ("c.json", json.dumps({"tokens": [1, 32, 64], "cost": [8, 12, 14]})),
    ],
)
def test_every_form_of_a_table_reads_the_same(tmp_path: Path, name: str, text: str) -> None:
    """CSV with and without header, and the three shapes of JSON, give the same interpolated costs."""
    table = Measured.load(written(tmp_path, name, text)).table(96)
    np.testing.assert_allclose(table[[0, 1, 32, 48, 64, 96]], [8.0, 8.0, 12.0, 13.0, 14.0, 16.0])


def test_a_measured_table_never_falls() -> None:
    """A point below its predecessor is raised to it, and a single point is a constant."""
    np.testing.assert_allclose(Measured((1, 3, 5), (4.0, 2.0, 6.0)).table(5), [4.0, 4.0, 4.0, 4.0, 5.0, 6.0])
    np.testing.assert_allclose(Measured((7,), (3.0,)).table(9), 3.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "needs pairs of both"),
        ("a.csv", "tokens,cost\n", "needs pairs of both"),
        ("a.csv", "1,2,3\n", "point 0"),
        ("a.csv", "one,2\n", "must hold lines of tokens,cost"),
        ("a.csv", "1,0\n", "cost of point 0 = 0.0"),
        ("a.csv", "1,nan\n", "cost of point 0 = nan"),
        ("a.csv", "1,1e999\n", "cost of point 0 = inf"),
        ("a.csv", "nan,1\n", "tokens of point 0 = nan"),
        ("a.csv", "1.5,1\n", "tokens of point 0 = 1.5"),
        ("a.csv", "-1,1\n", "tokens of point 0 = -1"),
        ("a.csv", "4,1\n4,2\n", "tokens of point 1 = 4.0: must be more than"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.csv", "1,2\n" * (MAX_TABLE_BYTES // 4 + 1), "at most 1048576 bytes"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", "3", "must be a list of points"),
        ("a.json", "[3]", "point 0"),
        ("a.json", '[["1", 2]]', "tokens of point 0 = '1'"),
        ("a.json", "[[1, true]]", "cost of point 0 = True"),
        ("a.json", "[[1, NaN]]", "cost of point 0 = nan"),
        ("a.json", '[{"tokens": 1}]', "cost of point 0 = None"),
        ("a.json", '{"tokens": [1, 2], "cost": [1]}', "of the same length"),
        ("a.json", '{"tokens": 1, "cost": 1}', "of the same length"),
    ],
)
def test_a_malformed_table_is_refused_in_one_line(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    """Whatever is wrong with a file is one InvalidValue that says where and why."""
    with pytest.raises(InvalidValue, match=message) as caught:
        Measured.load(written(tmp_path, name, text))
    assert len(str(caught.value)) < 400


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """A file that is not there is InvalidValue with its name."""
    with pytest.raises(InvalidValue, match=r"gone\.csv.*No such file"):
        Measured.load(tmp_path / "gone.csv")
