"""An engine's token and the authorities that it trusts, against the real api."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.api.harness import Publisher, RunningApi
from tests.api.tokens import TokenFile
from tests.certificates import issue
from tests.hooks.harness import KNOTS, PAIR, RawServer, reply
from tests.waiting import until

from accord.api import Settings
from accord.api.auth import Role
from accord.hooks import puller as module
from accord.hooks.agent import Agent
from accord.hooks.credentials import CredentialError, Credentials
from accord.hooks.settings import AgentSettings
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, so that several polls fit into a test."""
    monkeypatch.setattr(module, "PAUSE_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.02)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """One token of every role."""
    return TokenFile(tmp_path / "tokens")


@pytest.fixture
def guarded(store: Store, server: EmbeddedServer, tokens: TokenFile) -> Iterator[RunningApi]:
    """An api that asks for tokens."""
    with RunningApi(Settings(redis_url=server.url, tokens_file=str(tokens.path))) as running:
        running.app.state.auth.throttle.longest_s = 0.0
        yield running.ready()


@pytest.fixture
def publisher(store: Store) -> Publisher:
    """Who publishes for the pair."""
    return Publisher(store, PAIR, KNOTS)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The engine's token file."""
    return tmp_path / "token"


def replace(path: Path, text: str) -> None:
    """A new content in one step."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


@contextmanager
def engine(**settings: object) -> Iterator[Agent]:
    """An agent that pulls, and must end when told to."""
    agent = Agent(PAIR, AgentSettings.from_env({}, knots=",".join(map(str, KNOTS)), poll_wait_s=0.5, **settings))
    agent.start()
    try:
        yield agent
    finally:
        agent.stop(10.0)


def version(agent: Agent) -> int:
    """What is in force from the next round on."""
    return agent.boundary().version


def test_a_token_file(guarded: RunningApi, publisher: Publisher, tokens: TokenFile, own: Path) -> None:
    """The token of a file lets the engine have its coefficients; white space around it does not matter."""
    publisher.publish()
    replace(own, f"  {tokens.tokens[Role.ENGINE]}\n")
    with engine(api_url=guarded.url, api_token_file=str(own)) as agent:
        until(lambda: version(agent) == 1)
        assert agent.state()[0] == "fleet"


def test_rotation_needs_no_restart(guarded: RunningApi, publisher: Publisher, tokens: TokenFile, own: Path) -> None:
    """When its token is taken away the engine says why and keeps its coefficients; a new one in the file is taken."""
    publisher.publish()
    replace(own, tokens.tokens[Role.ENGINE])
    with engine(api_url=guarded.url, api_token_file=str(own)) as agent:
        until(lambda: version(agent) == 1)
        tokens.lines.pop(0)
        fresh = tokens.add("engine-2", Role.ENGINE)
        until(lambda: agent.state()[0] == "stale")
        reason = agent.status()["reason"]
        assert reason == "the token of ACCORD_API_TOKEN_FILE is refused: HTTP 401: this token is not known here"
        assert version(agent) == 1
        publisher.publish()
        replace(own, fresh)
        until(lambda: version(agent) == 2)
        assert agent.state()[0] == "fleet"


def test_a_rotation_in_time_is_not_even_noticed(
    guarded: RunningApi, publisher: Publisher, tokens: TokenFile, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the new token is in the file before the old one ends, no poll fails."""
    publisher.publish()
    replace(own, tokens.tokens[Role.ENGINE])
    with engine(api_url=guarded.url, api_token_file=str(own)) as agent:
        until(lambda: version(agent) == 1)
        replace(own, tokens.add("engine-2", Role.ENGINE))
        until(lambda: len(guarded.app.state.auth.keyring.tokens.entries) == 4)
        tokens.lines.pop(0)
        tokens.write()
        until(lambda: guarded.app.state.auth.refusals)
        publisher.publish()
        until(lambda: version(agent) == 2)
        assert agent.state()[0] == "fleet"
        assert sum(guarded.app.state.auth.refusals.values()) == 1


def test_no_token(guarded: RunningApi, publisher: Publisher) -> None:
    """An engine without a token says that it needs one, and where to name it."""
    with engine(api_url=guarded.url) as agent:
        until(lambda: "401" in agent.state()[1])
        assert agent.state()[1].startswith("a token is needed, set ACCORD_API_TOKEN_FILE: HTTP 401: ")


def test_file_that_comes_later(guarded: RunningApi, publisher: Publisher, tokens: TokenFile, own: Path) -> None:
    """A file that is missing, or holds no token, is named and looked at again."""
    publisher.publish()
    with engine(api_url=guarded.url, api_token_file=str(own)) as agent:
        until(lambda: "No such file" in agent.state()[1])
        assert agent.state()[1] == f"ACCORD_API_TOKEN_FILE = {str(own)!r}: No such file or directory"
        replace(own, "two words")
        until(lambda: "must hold one token" in agent.state()[1])
        replace(own, tokens.tokens[Role.ENGINE])
        until(lambda: version(agent) == 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": {"code": "forbidden", "message": "not\\u0007 you\\n"}}', "HTTP 403: not you"),
        (b'{"error": {"message": 7}}', "HTTP 403"),
        (b"[" * 3000, "HTTP 403"),
        (b"x" * 10_000, "HTTP 403"),
        (b"\xff\xfe", "HTTP 403"),
    ],
)
def test_403(body: bytes, told: str) -> None:
    """A 403 is told with the service's own words, where it has some."""
    with (
        RawServer(lambda client, _: client.sendall(reply("403 Forbidden", body))) as refusing,
        engine(api_url=refusing.url, api_token="s3cret") as agent,
    ):
        until(lambda: "403" in agent.state()[1])
        assert agent.state()[1] == f"the token of ACCORD_API_TOKEN is refused: {told}"


def test_a_private_authority(store: Store, server: EmbeddedServer, publisher: Publisher, tmp_path: Path) -> None:
    """With ACCORD_API_CA_FILE an engine trusts a private authority, and without it it does not."""
    publisher.publish()
    made = issue(tmp_path / "tls")
    settings = Settings(redis_url=server.url, tls_cert=str(made.certificate), tls_key=str(made.key))
    with RunningApi(settings) as running:
        assert re.fullmatch(r"https://127\.0\.0\.1:[0-9]+", running.url)
        with engine(api_url=running.url, api_ca_file=str(made.authority)) as agent:
            until(lambda: version(agent) == 1)
        with engine(api_url=running.url) as agent:
            until(lambda: "CERTIFICATE_VERIFY_FAILED" in agent.state()[1])
            assert version(agent) == 0


def test_an_authority_that_is_none(tmp_path: Path) -> None:
    """A file without a certificate, or no file, is named."""
    (tmp_path / "ca").write_text("words")
    for name, why in (("ca", "no certificate in it"), ("none", "No such file or directory")):
        path = str(tmp_path / name)
        with pytest.raises(CredentialError) as caught:
            Credentials(ca_file=path).verify("https://h")
        assert str(caught.value) == f"ACCORD_API_CA_FILE = {path!r}: {why}"


def test_not_shown() -> None:
    """A token is not in the text of what holds it."""
    assert "s3cret" not in repr(Credentials("s3cret", "file"))
