from __future__ import annotations

import importlib.metadata
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.spec_decode import speculator
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

from accord.hooks.vllm import notice, plugin, probe

pytestmark = pytest.mark.engine

PATCHED = (
    (speculator.DraftModelSpeculator, "load_model"),
    (model_runner.GPUModelRunner, "add_requests"),
    (model_runner.GPUModelRunner, "shutdown"),
)


def methods() -> list[Any]:
    """The methods that the plugin wraps, as they are now."""
    return [vars(owner)[name] for owner, name in PATCHED]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which vLLM has not called the plugin yet."""
    was_installed = plugin.installed()
    plugin.uninstall()
    notice._said.clear()
    for variable in ("ACCORD_DISABLE", "ACCORD_STRICT"):
        monkeypatch.delenv(variable, raising=False)
    yield
    monkeypatch.undo()
    plugin.uninstall()
    if was_installed:
        plugin.register()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the operator has read so far."""
    caplog.set_level(logging.WARNING, logger="accord")
    return lambda: caplog.messages


def test_vllm_finds_the_plugin() -> None:
    """The entry point leads to `register`."""
    (entry,) = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "accord"]
    assert entry.load() is plugin.register


def test_registering_twice_wraps_once(said: Callable[[], list[str]]) -> None:
    """A second call changes nothing, and neither says a word."""
    stock = methods()
    plugin.register()
    assert plugin.installed()
    once = methods()
    plugin.register()
    assert methods() == once
    assert all(ours is not theirs for ours, theirs in zip(once, stock, strict=True))
    plugin.uninstall()
    assert methods() == stock
    assert said() == []


def test_every_target_is_there() -> None:
    """The probe finds nothing missing in this vLLM."""
    assert probe.missing() == []


@pytest.mark.parametrize(
    ("owner", "name", "stand_in"),
    [
        (OnlineAcceptanceEstimator, "step", None),
        (OnlineAcceptanceEstimator, "predict", lambda self, logits, temperature: None),
        (speculator.DraftModelSpeculator, "observe_verification", None),
        (model_runner.GPUModelRunner, "add_requests", lambda self, scheduler_output, more: None),
    ],
)
def test_a_missing_target_leaves_vllm_as_it_is(
    owner: Any, name: str, stand_in: Any, said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning names what is missing or has changed, and nothing is patched."""
    if stand_in is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, stand_in)
    before = [vars(patched).get(method) for patched, method in PATCHED]
    plugin.register()
    plugin.uninstall()
    plugin.register()
    assert not plugin.installed()
    assert [vars(patched).get(method) for patched, method in PATCHED] == before
    assert len(said()) == 1
    assert f"{owner.__name__}.{name}" in said()[0]


def test_strict_makes_it_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ACCORD_STRICT an incompatible vLLM does not start."""
    monkeypatch.setenv("ACCORD_STRICT", "1")
    monkeypatch.delattr(OnlineAcceptanceEstimator, "step")
    with pytest.raises(notice.IncompatibleError, match=r"OnlineAcceptanceEstimator\.step"):
        plugin.register()
    assert not plugin.installed()


def test_half_done_patches_are_undone(said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last patch fails the first ones are taken back, and the plugin does not count as installed."""
    stock = methods()
    real = plugin._patch_set

    def one_too_many(module: Any) -> Any:
        patches = real(module)
        patches._patches = (*patches._patches, plugin.Patch(object, "load_model", print))
        return patches

    monkeypatch.setattr(plugin, "_patch_set", one_too_many)
    plugin.register()
    assert not plugin.installed()
    assert methods() == stock
    assert len(said()) == 1


def test_disabled_does_nothing(said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """ACCORD_DISABLE leaves no trace."""
    monkeypatch.setenv("ACCORD_DISABLE", "1")
    stock, finders = methods(), list(sys.meta_path)
    plugin.register()
    assert not plugin.installed()
    assert methods() == stock
    assert sys.meta_path == finders
    assert said() == []


def test_registering_starts_no_thread() -> None:
    """Threads belong to workers that own a speculator."""
    before = threading.active_count()
    plugin.register()
    assert threading.active_count() == before


def test_a_process_that_only_looks_at_models_pays_nothing() -> None:
    """Registering loads neither torch, Triton, vLLM nor the estimator, opens no socket, and is done in a moment."""
    check = (
        "import socket, sys, threading\n"
        "def fail(*a, **k): raise AssertionError('a socket')\n"
        "socket.socket.__init__ = fail\n"
        "from accord.hooks.vllm.plugin import register\n"
        "import time; began = time.perf_counter(); register(); register(); spent = time.perf_counter() - began\n"
        "heavy = {'torch', 'triton', 'vllm', 'numpy', 'redis', 'httpx', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert threading.active_count() == 1\n"
        "assert spent < 0.1, spent\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
