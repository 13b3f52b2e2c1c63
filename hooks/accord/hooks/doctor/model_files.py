"""What model folders on this machine say of themselves: numbers of parameters, vocabularies, tokenizers."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 256 << 20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


class ModelFolder:
    """A folder as `save_pretrained` or a download leaves it; nothing is loaded but headers and JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def find(cls, name: str, environ: Mapping[str, str]) -> ModelFolder | None:
        """The folder of a model: a path, or the snapshot in Hugging Face's cache; None when it is not here."""
        if Path(name).is_dir():
            return cls(Path(name))
        home = Path(environ.get("HF_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache" / "huggingface")
        hub = Path(environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
        try:
            snapshot = hub / "snapshots" / (hub / "refs" / "main").read_text().strip()
        except OSError:
            return None
        return cls(snapshot) if snapshot.is_dir() else None

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json with the text model's values on top; empty when there is none."""
        found = self._json("config.json")
        text = found.get("text_config")
        return found | text if isinstance(text, dict) else found

    @property
    def vocab_size(self) -> int | None:
        """Rows of the output: of the reduced vocabulary, where a head has one."""
        size = self.config.get("vocab_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def reduced_vocabulary(self) -> bool:
        """Whether it is a head that drafts from a part of the vocabulary on purpose."""
        return isinstance(self.config.get("draft_vocab_size"), int)

    @cached_property
    def parameters(self) -> int | None:
        """Numbers in its safetensors files, from their headers; or from the index; None when there are neither."""
        files = sorted(self.path.glob("*.safetensors"))
        counts = [_parameters(file) for file in files]
        if files and None not in counts:
            return sum(count for count in counts if count is not None)
        metadata = self._json("model.safetensors.index.json").get("metadata")
        found = metadata.get("total_parameters") if isinstance(metadata, dict) else None
        return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None

    @property
    def quantised(self) -> bool:
        """Whether several parameters may share one number."""
        return "quantization_config" in self.config

    @cached_property
    def tokens(self) -> dict[str, int] | None:
        """token -> id by tokenizer.json, None when it cannot be told."""
        document = self._json("tokenizer.json")
        model = document.get("model")
        vocab = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocab, dict):
            found = dict(vocab)
        elif isinstance(vocab, list):
            found = {str(entry[0]): number for number, entry in enumerate(vocab) if isinstance(entry, list) and entry}
        else:
            return None
        for token in document.get("added_tokens") or []:
            if isinstance(token, dict):
                found[str(token.get("content"))] = int(token.get("id", -1))
        return found

    def tokenizer_digests(self) -> dict[str, str]:
        """Tokenizer file -> SHA-256, of those that are there."""
        found = {}
        for name in _TOKENIZERS:
            try:
                with (self.path / name).open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                continue
        return found

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            if os.stat(path).st_size > MAX_JSON_BYTES:
                return {}
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _parameters(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= MAX_JSON_BYTES:
                return None
            header = json.loads(file.read(size))
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        return sum(math.prod(int(n) for n in tensor["shape"]) for tensor in tensors)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
