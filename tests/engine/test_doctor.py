"""`accord doctor` in the environment of a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.support.models import make_pair

from accord.hooks.doctor.engine import inspected
from accord.hooks.vllm.probe import TARGETS
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store

pytestmark = pytest.mark.engine


def doctor(*options: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    command = [sys.executable, "-m", "accord.hooks.doctor", "--json", *options]
    done = subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The last finding under each name."""
    return {check["name"]: check for check in report["checks"]}


def test_an_engine_that_works(tmp_path: Path, store: Store, server: EmbeddedServer) -> None:
    """Plugin, targets and patches are found good, the models are read, and nothing is left in Redis."""
    target, draft = make_pair(tmp_path)
    config = json.dumps({"model": str(draft), "method": "draft_model", "num_speculative_tokens": 3})
    code, report = doctor(
        "--model", str(target), "--speculative-config", config, ACCORD_REDIS_URL=server.url, ACCORD_MODE="local"
    )
    found = by_name(report)
    assert code == 0, report
    for name in ("plugin", "vllm", "targets", "pair", "models.vocabulary", "redis.append", "run"):
        expected = "skip" if name == "models.vocabulary" else "ok"
        assert found[name]["status"] == expected, found[name]
    assert "vLLM 0.3" in found["vllm"]["found"]
    assert f"{len(TARGETS)} of {len(TARGETS)} match, and the patches hold" in found["targets"]["found"]
    # The tiny draft is a copy of its target: the classic mistake.
    assert found["models.size"]["status"] == "warn"
    assert "1.0 times smaller" in found["models.size"]["found"]
    assert report["pair"].startswith("target.draft.draft_model.greedy.k3-")
    assert store.client.keys("*") == []


def test_the_old_runner() -> None:
    """An engine that is told to use the V1 runner learns that nothing would be estimated."""
    code, report = doctor("--engine-timeout", "1", VLLM_USE_V2_MODEL_RUNNER="0")
    assert code == 1
    assert "V1 model runner" in by_name(report)["vllm"]["found"]


def test_an_import_that_takes_too_long() -> None:
    """Importing vLLM is bounded, and given up with a word."""
    assert "not done after 0.2 s" in inspected(0.2, os.environ)["error"]


def test_a_worker_that_cannot_be_imported(tmp_path: Path) -> None:
    """A vLLM whose worker is broken is a finding, with the error that an engine would die of."""
    broken = tmp_path / "vllm"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.99: cannot open shared object file')")
    found = inspected(120.0, os.environ | {"PYTHONPATH": str(tmp_path)})
    assert "libcudart.so.99" in found["error"]
