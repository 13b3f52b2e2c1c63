from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import Engine, some

from accord.learner.carry import by_nearness, carried, fitted_to
from accord.learner.changes import Author, Wish, put
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.overrides import Kind
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.service.owner import PairOwner
from accord.learner.state_codec import Learnt, decode_learnt, encode_learnt
from accord.learner.store import PairKeys, Publication, Store
from accord.learner.wire import encode

KNOTS = (0.0, 2.0)
NEW = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 5)
PRIOR = Coefficients(np.array([0.7, 0.1, 0.0]), np.array([0.6, 0.3, 0.1]), 0.1)


@given(st.permutations(range(6)))
@some
def test_the_nearest_pair_comes_first_in_any_order(order: list[int]) -> None:
    """Another K is nearer than another sampling mode, that nearer than another draft; other targets never count."""
    others = [
        replace(NEW, k=4),
        replace(NEW, k=3),
        replace(NEW, draft_sampling=DraftSampling.PROBABILISTIC),
        replace(NEW, draft="org/Other"),
        replace(NEW, target="org/Else"),
        replace(NEW, method=Method.MTP),
    ]
    known = {others[i].id: (others[i], KNOTS) for i in order} | {NEW.id: (NEW, KNOTS)}
    assert by_nearness(NEW, KNOTS, known) == [other.id for other in others[:4]]
    assert by_nearness(NEW, (), known) == []


@given(st.integers(1, 9), st.integers(1, 9))
@some
def test_positions_are_cut_or_repeated(known: int, k: int) -> None:
    """Intercepts that both pairs have stay, and positions that only the new one has get the last known one."""
    found = fitted_to(np.arange(float(known)), k)
    assert found.tolist() == [float(min(i, known - 1)) for i in range(k)]


def test_a_carried_state_is_centred_on_the_other_pairs_prior_and_survives_its_bytes() -> None:
    """The fresh state's hierarchy and served prior are the other pair's, the request effect is not, and bytes agree."""
    source = CoefficientTable("other", 7, PRIOR, {}, KNOTS, 9_000)
    learnt = carried(Learnt.new(NEW.id, NEW.k, KNOTS), source)
    served = learnt.served.row("code:greedy")
    assert served.slopes.tolist() == PRIOR.slopes.tolist()
    assert served.intercepts.tolist() == [0.6, 0.3, 0.1, 0.1, 0.1]
    assert served.request_variance == 0.0
    again = decode_learnt(encode_learnt(learnt))
    assert again.carried == {"pair": "other", "version": 7, "published_ms": 9_000}
    assert encode_learnt(again) == encode_learnt(learnt)


def owned(store: Store, pair: Pair, *, carry: bool = False) -> PairOwner:
    """The pair, registered, with an owner of its own."""
    record = store.register(pair, KNOTS)
    lease = store.acquire(pair.id, "test", 60_000)
    assert lease is not None
    return PairOwner(store, record, lease, carry=carry)


def test_a_new_pair_is_served_the_nearest_prior_only_when_allowed(store: Store) -> None:
    """With leave the first commit publishes the carried prior and its lineage; without it the pair starts cold."""
    old = replace(NEW, k=3)
    owner = owned(store, old)
    engine = Engine(1, pair=old.id, requests=40)
    assert owner.step([("1000-0", encode(engine.round(60)))], 5_000, 10)
    taught = owner.learner.learnt.served

    record = store.register(NEW, KNOTS)
    lease = store.acquire(NEW.id, "test", 60_000)
    assert lease is not None
    assert PairOwner(store, record, lease).step([], 6_000, 10) == 0
    new = PairOwner(store, record, lease, carry=True)
    assert new.step([], 6_100, 10) == 1
    assert new.step([], 9_000, 10) == 0
    published = store.coefficients(NEW.id)
    assert published is not None
    table = CoefficientTable.from_json(published.body)
    assert (table.version, table.published_ms) == (1, 6_000)
    assert table.prior.slopes.tolist() == taught.prior.slopes.tolist()
    (entry,) = store.history(NEW.id, 10)
    assert json.loads(entry.entry)["carried"] == {
        "pair": old.id,
        "version": taught.version,
        "published_ms": taught.published_ms,
    }
    again = PairOwner(store, record, lease, carry=True)
    assert encode_learnt(again.learner.learnt) == encode_learnt(new.learner.learnt)
    assert Publication(1, published.body, entry.entry, 6_000).etag == published.etag


def test_a_prior_carried_by_a_clock_that_is_ahead_holds_no_publication_up(store: Store) -> None:
    """It is published as of an hour ahead; then the pair's time goes on from there, not an hour later."""
    old = replace(NEW, k=3)
    owner = owned(store, old)
    assert owner.step([("1000-0", encode(Engine(1, pair=old.id, requests=40).round(60)))], 5_000, 10)
    fresh, now = owned(store, NEW, carry=True), store.clock_ms(NEW.id)
    assert fresh.step([], now + 3_600_000, 10) == 1
    store.append(NEW.id, encode(Engine(2, k=NEW.k, pair=NEW.id, requests=40).round(300)), entry_id=f"{now}-0")
    published = sum(fresh.step(store.read(NEW.id, fresh.watermark, 10), now + turn * 250, 10) for turn in range(1, 12))
    assert published == 1
    assert not fresh.learner.learnt.due


@pytest.mark.parametrize("fields", [{"version": "x"}, {"version": "7"}, {"version": "7", "body": "{}", "etag": "x"}])
def test_a_prior_that_cannot_be_read_is_not_carried(store: Store, fields: dict[str, str]) -> None:
    """A pair beside one with broken coefficients starts cold, and is learnt."""
    old = replace(NEW, k=3)
    store.register(old, KNOTS)
    store.client.hset(PairKeys(old.id).coefficients, mapping=fields)
    owner = owned(store, NEW, carry=True)
    assert owner.learner.learnt.carried == {}
    body = encode(Engine(2, k=NEW.k, pair=NEW.id, requests=40).round(60))
    assert owner.step([("1000-0", body)], 5_000, 10) == 1


def test_what_an_operator_pinned_is_not_carried(store: Store) -> None:
    """A new pair starts from what was learnt of the nearest one, not from what somebody put over it."""
    old = replace(NEW, k=3)
    owner = owned(store, old)
    assert owner.step([("1000-0", encode(Engine(1, pair=old.id, requests=40).round(60)))], 5_000, 10)
    shift = Wish(Kind.SHIFT, shift=3.0)
    store.apply(put(store.standing(store.pairs()[old.id]), None, shift, Author("ada", "test")))
    carried_over = owned(store, NEW, carry=True).learner.learnt.served.prior
    assert carried_over.intercepts.tolist()[:3] == owner.learner.learnt.served.prior.intercepts.tolist()
