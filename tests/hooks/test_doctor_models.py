from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accord.hooks.doctor.facts import Facts
from accord.hooks.doctor.models import check_models
from accord.hooks.doctor.pairing import Asked, check_pair
from accord.hooks.doctor.report import Check, Status

TOKENS = {"a": 0, "b": 1, "c": 2, "d": 3}


def folder(path: Path, *shapes: list[int], tokens: dict[str, int] | None = None, **config: Any) -> Path:
    """A model as far as the doctor reads one."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"vocab_size": 4, "model_type": "llama"} | config))
    tensors = {f"t{i}": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for i, shape in enumerate(shapes)}
    header = json.dumps({"__metadata__": {"format": "pt"}} | tensors).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    if tokens is not None:
        (path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": tokens}}))
    return path


def findings(
    target: Path | str, draft: Path | str, environ: dict[str, str] | None = None, **config: Any
) -> list[Check]:
    """What the doctor says of two folders."""
    values = {"model": str(draft), "method": "draft_model", "num_speculative_tokens": 3} | config
    asked = Asked.of(str(target), json.dumps(values), None, None, None, None)
    facts = Facts(environ or {})
    list(check_pair(facts, asked))
    return list(check_models(facts, asked))


def test_a_fitting_pair(tmp_path: Path) -> None:
    """A draft ten times smaller with the same tokenizer is fine."""
    target = folder(tmp_path / "t", [100, 10], tokens=TOKENS)
    draft = folder(tmp_path / "d", [50], [25, 2], tokens=TOKENS)
    size, vocabulary = findings(target, draft)
    assert (size.status, vocabulary.status) == (Status.OK, Status.OK)
    assert "10.0 times smaller" in size.found


def test_a_draft_as_large_as_its_target(tmp_path: Path) -> None:
    """A draft less than five times smaller is warned of."""
    target, draft = folder(tmp_path / "t", [100], tokens=TOKENS), folder(tmp_path / "d", [50], tokens=TOKENS)
    size, _ = findings(target, draft)
    assert size.status is Status.WARN
    assert "2.0 times smaller only" in size.found


def test_an_index_counts_where_there_are_no_files(tmp_path: Path) -> None:
    """The number of parameters in an index is believed when the files are not there."""
    target, draft = folder(tmp_path / "t", [100]), folder(tmp_path / "d", [10])
    (target / "model.safetensors").unlink()
    (target / "model.safetensors.index.json").write_text('{"metadata": {"total_parameters": 70}}')
    size, _ = findings(target, draft)
    assert "7.0 times smaller" in size.found


@pytest.mark.parametrize("header", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x05\0\0\0\0\0\0\0hello"])
def test_damaged_files_are_not_counted(tmp_path: Path, header: bytes) -> None:
    """A header that cannot be read leaves the size unknown, and fails nothing."""
    target, draft = folder(tmp_path / "t", [100]), folder(tmp_path / "d", [10])
    (target / "model.safetensors").write_bytes(header)
    assert findings(target, draft)[0].status is Status.SKIP


def test_another_vocabulary(tmp_path: Path) -> None:
    """Different vocab_size is warned of, unless vLLM is told to translate."""
    target, draft = folder(tmp_path / "t", [100]), folder(tmp_path / "d", [10], vocab_size=5)
    assert findings(target, draft)[1].status is Status.WARN
    assert findings(target, draft, use_heterogeneous_vocab=True)[1].status is Status.SKIP


def test_another_tokenizer_of_the_same_size(tmp_path: Path) -> None:
    """Equal sizes do not hide that ids mean other words."""
    target = folder(tmp_path / "t", [100], tokens=TOKENS)
    draft = folder(tmp_path / "d", [10], tokens={"b": 0, "a": 1, "c": 2, "d": 3})
    _, vocabulary = findings(target, draft)
    assert vocabulary.status is Status.WARN
    assert "2 of 4 tokens" in vocabulary.found


def test_the_same_words_in_another_file(tmp_path: Path) -> None:
    """Tokenizer files may differ in what does not concern ids."""
    target = folder(tmp_path / "t", [100], tokens=TOKENS)
    draft = folder(tmp_path / "d", [10], tokens=dict(reversed(TOKENS.items())))
    assert findings(target, draft)[1].status is Status.OK


def test_a_head_with_a_reduced_vocabulary(tmp_path: Path) -> None:
    """A head that was trained on a part of the vocabulary is no mistake."""
    target, head = folder(tmp_path / "t", [100]), folder(tmp_path / "h", [1], draft_vocab_size=2)
    assert [check.status for check in findings(target, head, method="eagle3")] == [Status.OK, Status.OK]


def test_a_target_that_drafts_itself(tmp_path: Path) -> None:
    """With mtp there is nothing to compare."""
    target = folder(tmp_path / "t", [100])
    (only,) = findings(target, target, method="mtp")
    assert only.status is Status.SKIP


def test_models_elsewhere_are_not_guessed_at(tmp_path: Path) -> None:
    """A model that is not on this machine is named, and nothing is downloaded."""
    (only,) = findings(folder(tmp_path / "t", [100]), "org/draft", {"HF_HOME": str(tmp_path)})
    assert only.status is Status.SKIP
    assert "org/draft" in only.found


def test_the_hub_cache_is_searched(tmp_path: Path) -> None:
    """A model of the hub is found in its cache."""
    cache = tmp_path / "hub" / "models--org--draft"
    folder(cache / "snapshots" / "abc", [10])
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    size, _ = findings(folder(tmp_path / "t", [100]), "org/draft", {"HF_HOME": str(tmp_path)})
    assert "10.0 times smaller" in size.found
