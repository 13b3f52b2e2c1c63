from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import some

from accord.learner.errors import InvalidValue
from accord.learner.workload import TemperatureClass, WorkloadKey


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (0.0, "greedy"),
        (-0.0, "greedy"),
        (5e-324, "cool"),
        (0.5, "cool"),
        (math.nextafter(0.5, 1), "warm"),
        (0.85, "warm"),
        (math.nextafter(0.85, 1), "sampled"),
        (1.15, "sampled"),
        (math.nextafter(1.15, 2), "hot"),
        (1e300, "hot"),
    ],
)
def test_class_of_a_temperature(temperature: float, expected: str) -> None:
    """Every class reaches up to and including its limit."""
    assert TemperatureClass.of(temperature).value == expected
    assert TemperatureClass.of(temperature, constrained=True) is TemperatureClass.CONSTRAINED


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf, -math.inf])
def test_refuses_an_impossible_temperature(temperature: float) -> None:
    """A temperature that is no finite number >= 0 is refused by name."""
    with pytest.raises(InvalidValue, match="temperature"):
        TemperatureClass.of(temperature)


@given(st.from_regex(re.compile(r"[a-z0-9][a-z0-9._-]{0,63}"), fullmatch=True), st.sampled_from(TemperatureClass))
@some
def test_a_key_survives_its_text(label: str, kind: TemperatureClass) -> None:
    """Parsing the text of a key gives the key."""
    key = WorkloadKey(label, kind)
    assert WorkloadKey.parse(str(key)) == key


@pytest.mark.parametrize(
    "text", ["", "code", ":greedy", "code:", "Code:greedy", "code:Greedy", "code:greedy:x", "a" * 65 + ":hot", "é:hot"]
)
def test_refuses_what_is_no_key(text: str) -> None:
    """Text that is not label:class is refused and shown."""
    with pytest.raises(InvalidValue, match="workload"):
        WorkloadKey.parse(text)


@pytest.mark.parametrize("value", [None, 7, b"code:greedy", ["code:greedy"]])
def test_refuses_what_is_not_text(value: object) -> None:
    """Values of other types are refused, not converted."""
    with pytest.raises(InvalidValue, match="workload"):
        WorkloadKey.parse(value)  # type: ignore[arg-type]


def test_a_label_does_not_end_in_a_line_break() -> None:
    """A trailing line break does not pass as part of a label."""
    with pytest.raises(InvalidValue):
        WorkloadKey("code\n", TemperatureClass.HOT)
