"""`accord audit` on a real vLLM server that knows nothing of accord."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import typer
from tests.engine.support.models import add_tokenizer, make_pair
from tests.engine.support.serving import server
from typer.testing import CliRunner

from accord.api.audit_engine import command
from accord.api.audit_engine.page import parse

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

K = 3


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose draft is often right."""
    folder = tmp_path_factory.mktemp("models")
    target, draft = make_pair(folder, noise=0.02)
    add_tokenizer(target)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with server(target, draft, port, folder / "server.log", k=K) as running:
        yield running


def audit(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON of an audit."""
    app = typer.Typer()
    app.command()(command.audit)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.stdout, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return done.exit_code, found


def test_before_any_traffic(url: str) -> None:
    """A server that has drafted nothing yet speculates, but cannot be judged."""
    code, found = audit(url, "--interval", "0.1")
    assert (code, found["verdict"], found["without_speculation"]) == (2, "unknown", [])
    ((name, engine),) = found["engines"].items()
    assert name.startswith("tiny")
    assert "nothing was drafted" in engine["message"]


def test_a_load_is_judged_by_the_servers_own_counters(url: str) -> None:
    """The load's drafts, acceptance by position and tokens per step are those that the server counted meanwhile."""
    before = httpx.get(f"{url}/metrics", trust_env=False).text
    code, found = audit(url, "--load", "16", "--concurrency", "8", "--max-tokens", "48", "--timeout", "300")
    after = httpx.get(f"{url}/metrics", trust_env=False).text
    (engine,) = found["engines"].values()
    counted = {
        name: _sum(after, f"vllm:spec_decode_num_{name}_total") - _sum(before, f"vllm:spec_decode_num_{name}_total")
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    }
    assert engine["drafts"] == counted["drafts"] > 200
    assert engine["k"] == len(engine["acceptance"]) == K
    assert engine["mean_accepted_length"] == pytest.approx(counted["accepted_tokens"] / counted["drafts"])
    assert sum(engine["acceptance"]) == pytest.approx(engine["mean_accepted_length"])
    assert engine["drafted_per_step"] == pytest.approx(counted["draft_tokens"] / counted["drafts"])
    assert engine["tokens_per_step"] == pytest.approx(1.0 + engine["mean_accepted_length"])
    assert (code, found["verdict"]) == ({"helps": 0, "marginal": 0, "hurts": 1}[engine["verdict"]], engine["verdict"])
    load = found["load"]
    assert (load["sent"], load["failed"], load["compared"]) == (16, 0, 8)
    assert 0 < load["tokens"] <= 16 * 48


def test_greedy_answers_of_a_sound_engine_repeat(url: str) -> None:
    """One request at a time, greedy answers are the same the second time."""
    load = audit(url, "--load", "4", "--concurrency", "1", "--max-tokens", "8", "--timeout", "300")[1]["load"]
    assert (load["compared"], load["mismatches"], load["failed"]) == (2, 0, 0)


def test_nothing_on_the_page_is_unreadable(url: str) -> None:
    """Every counter of the real page is read."""
    page = parse(httpx.get(f"{url}/metrics", trust_env=False).text)
    assert (page.vllm, page.adaptive, page.unreadable) == (True, False, 0)
    (engine,) = page.engines.values()
    assert engine.speculates
    assert sorted(engine.by_position) == list(range(K))
    assert engine.running is not None


def _sum(text: str, name: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}{{"))
