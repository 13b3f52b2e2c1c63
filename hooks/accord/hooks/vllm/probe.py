"""What of vLLM the plugin needs, looked for by attribute and signature and never by version."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

RUNNER_MODULE = "vllm.v1.worker.gpu.model_runner"
"""Its import is the sign that this process owns, or will own, a worker."""

V1_RUNNER_MODULE = "vllm.v1.worker.gpu_model_runner"

_SPECULATOR = "vllm.v1.worker.gpu.spec_decode.speculator"
_ESTIMATOR = "vllm.v1.worker.gpu.spec_decode.acceptance_estimator"
_PARALLEL = "vllm.distributed.parallel_state"


@dataclass(frozen=True)
class Target:
    """Something that must be there.

    Attributes:
        module: where.
        path: dotted attribute in it.
        parameters: names that a callable must take, in this order, `self` left out; None when only presence counts.
    """

    module: str
    path: str
    parameters: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"


TARGETS = (
    Target(RUNNER_MODULE, "GPUModelRunner.add_requests", ("scheduler_output",)),
    Target(_SPECULATOR, "DraftModelSpeculator.load_model", ("target_model",)),
    Target(_SPECULATOR, "DraftModelSpeculator.observe_verification", ("idx_mapping", "num_sampled", "num_rejected")),
    Target(_SPECULATOR, "DraftModelSpeculator._maybe_predict_acceptance", ("logits", "idx_mapping", "draft_step")),
    Target(_ESTIMATOR, "OnlineAcceptanceEstimator", ("max_num_reqs", "num_speculative_steps", "device")),
    Target(_ESTIMATOR, "OnlineAcceptanceEstimator.step", ("idx_mapping", "num_sampled", "num_rejected")),
    Target(
        _ESTIMATOR,
        "OnlineAcceptanceEstimator.predict",
        ("logits", "idx_mapping", "draft_step", "confidence_probs", "temperature"),
    ),
    Target(_PARALLEL, "get_tp_group", ()),
    Target(_PARALLEL, "GroupCoordinator.broadcast_object", ("obj", "src")),
)


def missing(targets: tuple[Target, ...] = TARGETS) -> list[str]:
    """What is not there, or is there with another signature; empty when everything is as it must be.

    Imports the targets' modules, so call it only where they are imported anyway, or in a diagnosis.
    """
    return [fault for target in targets if (fault := _fault(target)) is not None]


def find(target: Target, load: Callable[[str], ModuleType] = importlib.import_module) -> Any:
    """The target itself.

    Raises:
        ImportError, AttributeError: when it is not there.
    """
    found: Any = load(target.module)
    for name in target.path.split("."):
        found = getattr(found, name)
    return found


def _fault(target: Target) -> str | None:
    try:
        found = find(target)
    except Exception as error:  # noqa: BLE001  # whatever a module of another version does, it is just not usable
        return f"{target} ({type(error).__name__}: {error})"[:300]
    if target.parameters is None:
        return None
    try:
        parameters = [p for p in inspect.signature(found).parameters.values() if p.name != "self"]
    except (TypeError, ValueError):
        return f"{target} (its signature cannot be read)"
    named = tuple(p.name for p in parameters)
    extra = parameters[len(target.parameters) :]
    # More parameters at the end are no harm while they may be left out.
    if named[: len(target.parameters)] != target.parameters or any(_needed(p) for p in extra):
        return f"{target} takes ({', '.join(named)}), expected ({', '.join(target.parameters)})"
    return None


def _needed(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variadic
