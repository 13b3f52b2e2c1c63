"""A real api before a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api.cli import Cli
from tests.api.harness import Publisher, RunningApi
from tests.api.test_pairs import learnt

from accord.api import Settings
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store


@pytest.fixture
def settings(server: EmbeddedServer) -> Settings:
    """Defaults, on the test's store."""
    return Settings(redis_url=server.url)


@pytest.fixture
def api(store: Store, settings: Settings) -> Iterator[RunningApi]:
    """An api whose change feed is alive."""
    with RunningApi(settings) as running:
        yield running.ready()


@pytest.fixture
def publisher(store: Store) -> Publisher:
    """The owner of a registered pair that has published nothing."""
    return Publisher(store)


@pytest.fixture
def cli(api: RunningApi, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The commands, pointed at the running api."""
    return Cli(capsys, api.url)


@pytest.fixture
def known(publisher: Publisher) -> Publisher:
    """A pair with one learnt workload, version 1 in force."""
    publisher.publish(learnt(publisher.table(1, code_greedy=0.4)), code_greedy=0.4)
    return publisher
