"""Two releases side by side: engines, learners and apis are never all replaced at once."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.e2e.stream import KNOTS, summaries, ticks
from tests.waiting import until

from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.evaluate.trace import Trace
from accord.learner.pair_learner import Entry
from accord.learner.state_codec import decode_learnt
from accord.learner.store import Store

from .support import Release, detail, replay, running, service

PREVIOUS = "0.1.0"
NOW = Release("now", None)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release before this one, as it was."""
    tree = tmp_path_factory.mktemp("previous")
    with zipfile.ZipFile(Path(__file__).with_name(f"accord-{PREVIOUS}.zip")) as packed:
        packed.extractall(tree)
    return Release(PREVIOUS, tree)


@pytest.mark.parametrize(
    ("engine", "learner", "api"),
    [("old", "new", "new"), ("new", "old", "old")],
)
def test_engines_learners_and_apis_of_two_releases_work_together(
    server: EmbeddedServer, store: Store, before: Release, tmp_path: Path, engine: str, learner: str, api: str
) -> None:
    """Whichever side is upgraded first, every label is learnt, nothing refused, and what is served is applied."""
    releases = {"old": before, "new": NOW}
    with service(releases[learner], releases[api], server, tmp_path) as url:
        said = replay(releases[engine], "host-1", server, url, tmp_path, steps=1000)
        pair, sent = said["pair"], said["labels"]["sent"]
        assert said["labels"]["put"] == sent > 10_000
        assert said["version"] > 0
        assert (said["nack"], said["refusals"]) == (None, {})
        until(lambda: detail(url, pair)["labels"] == sent)
        found = detail(url, pair)
        assert found["counters"]["refused"] == {}
        assert [(item["engine"], item["version"]) for item in found["engines"]] == [("host-1", said["version"])]


def stream(trace: Trace, shares: int) -> tuple[list[list[Entry]], int]:
    """A stream of two engines in so many parts, with ids that lie in the past, and how many labels it has."""
    made = summaries(trace, engines=2, rounds=40, steps=20)
    laid = ticks(made, seed=5)
    size = -(-len(laid) // shares)
    parts = [[entry for tick in laid[at : at + size] for entry in tick] for at in range(0, len(laid), size)]
    # A learner whose clock is far ahead of a part publishes what is due behind it, and takes no earlier ids then.
    parts = [[(later(key, 10_000 * turn), body) for key, body in part] for turn, part in enumerate(parts)]
    return parts, sum(summary.labels for summary in made)


def later(entry_id: str, by_ms: int) -> str:
    """A stream id moved into the future."""
    ms, _, seq = entry_id.partition("-")
    return f"{int(ms) + by_ms}-{seq}"


def test_learners_of_two_releases_take_over_from_each_other(
    server: EmbeddedServer, store: Store, before: Release, tmp_path: Path
) -> None:
    """Learners that are killed and replaced by those of the other release lose no label and count none twice."""
    order = ("old", "new", "old", "new")
    trace, releases = Trace.bundled(), {"old": before, "new": NOW}
    pair, versions = trace.pair.id, [0]
    parts, labels = stream(trace, len(order))
    store.register(trace.pair, KNOTS)
    for turn, (which, entries) in enumerate(zip(order, parts, strict=True)):
        for entry_id, payload in entries:
            store.append(pair, payload, entry_id=entry_id)
        log = tmp_path / f"learner-{turn}.log"
        options = ["--redis-url", server.url, "--lease-ms", "1000"]
        with running(releases[which].child("accord.learner", options, log)) as learner:
            until(lambda last=entries[-1][0]: store.load(pair).watermark == last)
            learner.kill()
        versions.append(store.load(pair).version)
    stored = store.load(pair)
    counted = Counters.decode(stored.counters)
    assert (counted.labels, counted.refused) == (labels, {})
    assert versions == sorted(versions)
    assert stored.body is not None
    assert decode_learnt(stored.body).state.labels.sum() == labels
