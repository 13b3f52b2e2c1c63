from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import many, some

from accord.learner.counters import Counters
from accord.learner.errors import Reason, Refusal

counts = st.integers(0, 2**63)
named = st.dictionaries(st.text(max_size=8), counts, max_size=4)


@given(st.builds(Counters, counts, counts, counts, counts, counts, named, named, st.dictionaries(st.text(), st.text())))
@some
def test_counters_survive_their_bytes(counters: Counters) -> None:
    """Encoding is canonical and decoding inverts it."""
    again = Counters.decode(counters.encode())
    assert again == counters
    assert again.encode() == counters.encode()


def test_refusals_are_counted_by_reason_and_the_newest_is_kept() -> None:
    """Each reason has its own count; the last refusal shows reason, bounded detail and entry."""
    counters = Counters()
    counters.refuse(Refusal(Reason.SIZE, "x" * 9_999), "1-0")
    counters.refuse(Refusal(Reason.SIZE, "y"), "1-1")
    counters.refuse(Refusal(Reason.KNOTS, "\ud800 odd"), "2-0")
    assert counters.refused == {"size": 2, "knots": 1}
    assert counters.last_refusal == {"reason": "knots", "detail": "\ud800 odd", "entry": "2-0"}
    assert Counters.decode(counters.encode()) == counters
    counters.refuse(Refusal(Reason.SIZE, "x" * 9_999), "3-0")
    assert len(counters.last_refusal["detail"]) == 300


def test_fits_are_counted_by_how_they_ended() -> None:
    """Each outcome of a refit has its own count."""
    counters = Counters()
    for status in ("converged", "slow", "converged"):
        counters.fitted(status)
    assert counters.fits == {"converged": 2, "slow": 1}


def test_another_version_is_read() -> None:
    """Fields of a newer version are left out, and fields of an older one begin at their default."""
    assert Counters.decode(b'{"labels":7,"invented":1}') == Counters(labels=7)
    assert Counters.decode(None) == Counters.decode(b"") == Counters()


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b"{", b'{"labels":"7"}', b'{"refused":3}', b'{"labels":true}', b"[" * 99_999]
)
def test_damaged_counters_are_refused(data: bytes) -> None:
    """Bytes that are no counters raise a refusal."""
    with pytest.raises(Refusal):
        Counters.decode(data)


@given(
    st.binary(max_size=40)
    | st.dictionaries(st.sampled_from(["labels", "fits", "x"]), st.none() | st.floats() | counts).map(
        lambda d: json.dumps(d).encode()
    )
)
@many
def test_random_bytes_only_raise_refusals(data: bytes) -> None:
    """Whatever is stored, the outcome is counters or a refusal."""
    with contextlib.suppress(Refusal):
        Counters.decode(data)
