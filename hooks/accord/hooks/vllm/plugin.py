"""The entry point `vllm.general_plugins`.

vLLM calls `register` in every process that it starts, also in short-lived ones that only look at a model, and sometimes
twice. So it only leaves word to be called when the module that runs a worker's model has been imported.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from .importing import when_imported
from .notice import IncompatibleError, borrow_handlers, complain, disabled, log
from .patches import Patch, PatchSet
from .probe import RUNNER_MODULE, V1_RUNNER_MODULE, missing

_lock = threading.Lock()
_registered = False
_patches: PatchSet | None = None


def register() -> None:
    """Called by vLLM. Opens no socket, starts no thread, imports neither torch nor vLLM; a second call does nothing.

    Raises:
        IncompatibleError: only with ACCORD_STRICT, and only in a process that runs a model already.
    """
    global _registered
    try:
        with _lock:
            if _registered or disabled():
                return
            _registered = True
        when_imported(V1_RUNNER_MODULE, _watch_v1)
        when_imported(RUNNER_MODULE, _install)
    except IncompatibleError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a plugin raises ends vLLM's process
        log.warning("accord: not used, vLLM works as without it: %s: %s", type(error).__name__, error)


def installed() -> bool:
    """Whether every patch is in force in this process."""
    return _patches is not None and _patches.installed


def uninstall() -> None:
    """Undoes the patches, and lets `register` start over. For tests, and for a process that wants out."""
    global _registered, _patches
    with _lock:
        if _patches is not None:
            _patches.undo()
        _registered, _patches = False, None


def _install(runner_module: ModuleType) -> None:
    """Called when the module that runs a worker's model is there."""
    global _patches
    borrow_handlers()
    try:
        faults = missing()
        if faults:
            complain(f"this vLLM lacks {'; '.join(faults)}")
            return
        with _lock:
            if _patches is None:
                patches = _patch_set(runner_module)
                patches.apply()
                _patches = patches
    except IncompatibleError:
        raise
    except Exception as error:  # noqa: BLE001  # the import of vLLM's module must not fail because of us
        complain(f"vLLM cannot be patched ({type(error).__name__}: {error})"[:500], error)


def _patch_set(runner_module: ModuleType) -> PatchSet:
    # Imported late: the estimator needs torch and Triton, which this process has by now.
    from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

    from . import worker

    runner = runner_module.GPUModelRunner
    patches = [
        Patch(DraftModelSpeculator, "load_model", worker.load_model),
        Patch(runner, "add_requests", worker.add_requests),
    ]
    if "shutdown" in vars(runner):
        patches.append(Patch(runner, "shutdown", worker.shutdown))
    return PatchSet(patches)


def _watch_v1(module: ModuleType) -> None:
    """vLLM's older runner has no estimator to replace: say so where it drafts."""

    def built(original: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        original(runner, *args, **kwargs)
        if getattr(runner, "speculative_config", None) is not None:
            complain(
                "this engine uses vLLM's V1 model runner; set VLLM_USE_V2_MODEL_RUNNER=1 for one with an estimator"
            )

    try:
        PatchSet([Patch(module.GPUModelRunner, "__init__", built)]).apply()
    except AttributeError as error:
        log.debug("accord: %s", error)
