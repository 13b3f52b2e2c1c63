"""Tiny random models on disk: a target, a draft that nearly agrees with it, and an EAGLE head."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
HIDDEN = 64


def make_pair(folder: Path, noise: float = 0.02, seed: int = 0) -> tuple[Path, Path]:
    """A random Llama of two layers, and the same weights with noise: folders `target` and `draft`.

    Logits are sharpened, so that the draft is sometimes sure and sometimes not.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(6.0)
        target, draft = folder / "target", folder / "draft"
        model.save_pretrained(target)
        for weight in model.parameters():
            weight.add_(noise * weight.std() * torch.randn_like(weight))
        model.save_pretrained(draft)
    return target, draft


def make_eagle_head(target: Path, folder: Path, seed: int = 1) -> Path:
    """A head whose layer is the target's first, behind a random projection of token and hidden state."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM.from_pretrained(target)
    weights = {
        name.removeprefix("model."): weight.contiguous().clone()
        for name, weight in model.state_dict().items()
        if name.startswith("model.layers.0.") and "layers.0.input_layernorm" not in name
    }
    weights["fc.weight"] = torch.cat([torch.eye(HIDDEN), 0.1 * torch.randn(HIDDEN, HIDDEN)], dim=1)
    head = folder / "eagle"
    head.mkdir(parents=True)
    config = json.loads((target / "config.json").read_text()) | {"num_hidden_layers": 1}
    (head / "config.json").write_text(json.dumps(config))
    save_file(weights, head / "model.safetensors", metadata={"format": "pt"})
    return head


def add_tokenizer(folder: Path) -> None:
    """A tokenizer with a token for each byte, and filler up to the size of the vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "</s>", *alphabet]
    tokens += [f"<filler{at}>" for at in range(len(tokens), VOCABULARY)]
    inner = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
