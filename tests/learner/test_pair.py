from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import some

from accord.learner.errors import InvalidValue
from accord.learner.pair import MAX_K, DraftSampling, Method, Pair, check_k, check_pair_id

PAIR = Pair("org/Target-8B", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 5)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=256)


@given(names, names, st.sampled_from(Method), st.sampled_from(DraftSampling), st.integers(1, MAX_K))
@some
def test_any_pair_has_a_safe_id_and_survives_its_dictionary(
    target: str, draft: str, method: Method, sampling: DraftSampling, k: int
) -> None:
    """The id of any pair is safe in keys and URLs, and the plain values give the pair back."""
    pair = Pair(target, draft, method, sampling, k)
    assert check_pair_id(pair.id) == pair.id
    assert re.fullmatch(r"[a-z0-9._-]+", pair.id)
    assert Pair.from_dict(pair.to_dict()) == pair


@pytest.mark.parametrize(
    "change",
    [
        {"target": "other/Target-8B"},
        {"draft": "org/draft"},
        {"method": Method.EAGLE3},
        {"draft_sampling": DraftSampling.PROBABILISTIC},
        {"k": 6},
    ],
)
def test_every_part_of_the_identity_changes_the_id(change: dict[str, Any]) -> None:
    """Pairs that differ anywhere, even in what the readable part hides, have different ids."""
    assert replace(PAIR, **change).id != PAIR.id


@pytest.mark.parametrize("value", [0, -1, 65, 2.0, True, "3", None])
def test_refuses_an_impossible_k(value: object) -> None:
    """K is a whole number from 1 to 64, and nothing that merely looks like one."""
    with pytest.raises(InvalidValue, match="k = "):
        check_k(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("target", ""), ("draft", "a\nb"), ("target", "x" * 257), ("method", "magic"), ("draft_sample_method", 3)],
)
def test_refuses_a_malformed_field_by_name(field: str, value: object) -> None:
    """A malformed field is refused with its name."""
    with pytest.raises(InvalidValue) as caught:
        Pair.from_dict(PAIR.to_dict() | {field: value})
    assert caught.value.field.startswith(field.removesuffix("_sample_method"))


def test_refuses_missing_and_unknown_fields() -> None:
    """A field too few or too many is refused with its name, and so is what is no object."""
    with pytest.raises(InvalidValue, match="k is missing"):
        Pair.from_dict({name: value for name, value in PAIR.to_dict().items() if name != "k"})
    with pytest.raises(InvalidValue, match="size is not known"):
        Pair.from_dict(PAIR.to_dict() | {"size": 1})
    with pytest.raises(InvalidValue, match="object"):
        Pair.from_dict([])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "A", "a/b", "a" * 129, "a\n", "{a}", None, 5])
def test_refuses_an_unsafe_id(text: object) -> None:
    """An id with characters that a key or a URL cannot carry is refused."""
    with pytest.raises(InvalidValue, match="pair"):
        check_pair_id(text)
