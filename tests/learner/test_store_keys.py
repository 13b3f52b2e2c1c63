from __future__ import annotations

import pytest
from redis.crc import key_slot
from tests.conftest import undeclared_keys

from accord.learner.errors import InvalidValue
from accord.learner.store import CHANGES, LEARNERS, PAIRS, PairKeys, Store, permanent_reason


@pytest.mark.parametrize("pair_id", ["a", "a.b", "llama-3.1-8b.eagle.eagle.greedy.k5-7fb6a352", "0" * 128])
def test_all_keys_of_a_pair_share_a_slot(pair_id: str) -> None:
    """A Cluster keeps all keys of a pair on one node, so that one script may touch them together."""
    keys = PairKeys(pair_id).all()
    assert len(set(keys)) == 8
    assert {key_slot(key.encode()) for key in keys} == {key_slot(pair_id.encode())}


def test_every_key_has_a_reason_to_stay() -> None:
    """Each key that lives for ever says why it may."""
    for key in [PAIRS, LEARNERS, *PairKeys("a.b").all()]:
        assert permanent_reason(key)


@pytest.mark.parametrize(
    "key", ["", "accord:", CHANGES, "accord:{a}:pairs", "accord:{a}:scratch", "accord:{}:state", "x:accord:pairs"]
)
def test_other_keys_have_no_reason(key: str) -> None:
    """A key that no module declares has no reason to stay."""
    assert permanent_reason(key) is None


@pytest.mark.parametrize("pair_id", ["", "a}b", "a:b", "../a", "A", "a" * 129, None])
def test_an_unsafe_pair_id_is_refused(pair_id: object) -> None:
    """A pair id that could break out of its key is named."""
    with pytest.raises(InvalidValue, match=r"^pair ="):
        PairKeys(pair_id)  # type: ignore[arg-type]


def test_the_fixture_finds_a_key_that_stays_without_reason(store: Store) -> None:
    """The check after every store test finds an undeclared key without a TTL, and only that."""
    store.client.set("accord:scratch", "x")
    store.client.set("accord:brief", "x", ex=60)
    store.append("a", b"x")
    assert undeclared_keys(store) == ["accord:scratch"]
    store.client.delete("accord:scratch")
