"""The whole loop once more with a real pair: text, a draft that lacks layers, and the service as processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.support.engines import params, status_of
from tests.engine.support.smollm2 import make_smollm2_pair, roomy_engine
from transformers import AutoTokenizer
from vllm import LLM

from accord.hooks.demo.stack import Stack
from accord.learner.coefficients import CoefficientTable

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(400)]

KINDS: list[tuple[str | None, float, str]] = [
    ("code", 0.0, "def fibonacci(n):\n    "),
    ("code", 0.0, "import json\n\nwith open('settings.json') as file:\n    "),
    ("chat", 1.0, "The capital of France is"),
    (None, 1.0, "Once upon a time there was a king who"),
]
WORKLOADS = {"code:greedy", "chat:sampled", "default:sampled"}
TOKENS = 24


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """SmolLM2-135M-Instruct and its draft."""
    return make_smollm2_pair(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Store, learner and API."""
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path], stack: Stack) -> Iterator[LLM]:
    """An engine of the fleet, in a process of its own."""
    settings = {
        "ACCORD_REDIS_URL": stack.redis_url,
        "ACCORD_API_URL": stack.api_url,
        "ACCORD_ROUND_STEPS": "4",
        "ACCORD_HEARTBEAT_S": "0.3",
        "ACCORD_ENGINE": "real/0",
    }
    with roomy_engine(*pair, settings, separate=True) as running:
        yield running


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came to hold."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_real_pair_teaches_every_workload_and_gets_back_what_is_published(
    llm: LLM, stack: Stack, pair: tuple[Path, Path]
) -> None:
    """Every label of a real pair's traffic is learnt under its workload, and the engine applies what is published."""
    tokenizer = AutoTokenizer.from_pretrained(pair[0])
    prompts = [{"prompt_token_ids": tokenizer.encode(text)} for _, _, text in KINDS]

    def status() -> dict[str, Any]:
        (found,) = llm.collective_rpc(status_of)
        return dict(found)

    url = f"{stack.api_url}/v1/pairs/{status()['pair']}"

    def served() -> CoefficientTable:
        return CoefficientTable.from_json(httpx.get(f"{url}/coefficients", trust_env=False).content)

    def learnt() -> dict[str, int]:
        workloads = httpx.get(url, trust_env=False).json()["workloads"]
        return {workload["workload"]: workload["labels"] for workload in workloads}

    started = time.monotonic()
    wanted = [params(label, tokens=TOKENS, temperature=t, seed=1) for label, t, _ in KINDS]
    outputs = llm.generate(prompts, wanted, use_tqdm=False)
    took = time.monotonic() - started
    assert [len(output.outputs[0].token_ids) for output in outputs] == [TOKENS] * len(KINDS)
    print([tokenizer.decode(output.outputs[0].token_ids) for output in outputs])
    last, table, labels = status(), served(), learnt()

    def settled() -> bool:
        nonlocal last, table, labels
        last, table, labels = status(), served(), learnt()
        return sum(labels.values()) == last["labels"]["put"] and last["version"] == table.version

    # Answers of one token verify no draft: they end rounds and teach nothing, so both sides come to rest.
    for at in range(24):
        llm.generate(prompts[:1], [params("code", tokens=1)], use_tqdm=False)
        if at >= 8 and until(settled, 1.5):
            break
    assert sum(labels.values()) == last["labels"]["put"]
    assert {workload for workload, count in labels.items() if count > 0} == WORKLOADS
    assert set(table.workloads) >= WORKLOADS
    assert (last["version"], last["digest"]) == (table.version, table.digest)
    assert last["version"] > 0
    assert last["applied"] == "fleet"
    assert last["labels"]["lost"] == last["rounds"]["lost"] == 0
    assert last["engine_errors"] == last["errors"] == last["refusals"] == {}
    print(f"{len(KINDS)} requests x {TOKENS} tokens in {took:.0f} s, {last['rounds_closed']} rounds,", labels)
    print("version", table.version, {key: table.workloads[key].intercepts.round(2).tolist() for key in WORKLOADS})
