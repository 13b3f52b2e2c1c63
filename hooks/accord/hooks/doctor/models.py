"""The classic mistakes with models: a draft as large as its target, and one that speaks another language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accord.learner.pair import Method

from .facts import Facts
from .model_files import ModelFolder
from .pairing import Asked
from .report import Check, ok, skip, warn

ENOUGH = 5.0
"""A draft model should be at least so many times smaller than its target; ten times is better."""

_SIZE, _VOCABULARY = "models.size", "models.vocabulary"


def check_models(facts: Facts, asked: Asked) -> Iterator[Check]:
    """Compares the folders of target and draft, where they are on this machine."""
    if facts.pair is None or asked.model is None or asked.draft is None:
        return
    if facts.pair.method is Method.MTP or asked.draft == asked.model:
        yield skip(_SIZE, "the target drafts with a part of itself: there is nothing to compare")
        return
    target, draft = (ModelFolder.find(name, facts.environ) for name in (asked.model, asked.draft))
    if target is None or draft is None:
        missing = " and ".join(name for name, found in ((asked.model, target), (asked.draft, draft)) if found is None)
        yield skip(_SIZE, f"no files of {missing} on this machine, so sizes and vocabularies are not compared")
        return
    yield _size(target, draft)
    yield from _vocabulary(facts.pair.method, target, draft, asked.config or {})


def _size(target: ModelFolder, draft: ModelFolder) -> Check:
    large, small = target.parameters, draft.parameters
    if not large or not small:
        return skip(_SIZE, "the number of parameters cannot be read: no safetensors files")
    ratio = large / small
    told = f"target {_short(large)}, draft {_short(small)} parameters: {ratio:.1f} times smaller"
    if target.quantised != draft.quantised:
        return skip(_SIZE, f"{told}, as far as stored numbers tell: only one of them is quantised")
    if ratio >= ENOUGH:
        return ok(_SIZE, told)
    advice = "take a draft 5 to 10 times smaller: every draft token costs a pass of the draft model"
    return warn(_SIZE, f"{told} only", advice)


def _vocabulary(
    method: Method, target: ModelFolder, draft: ModelFolder, config: Mapping[str, object]
) -> Iterator[Check]:
    if config.get("use_heterogeneous_vocab"):
        yield skip(_VOCABULARY, "use_heterogeneous_vocab: vLLM drafts from the tokens that both know")
        return
    wide, narrow = target.vocab_size, draft.vocab_size
    if draft.reduced_vocabulary and wide is not None:
        yield ok(
            _VOCABULARY, f"the head drafts {draft.config['draft_vocab_size']} of {wide} tokens, as it was trained to"
        )
        return
    if wide is not None and narrow is not None and wide != narrow:
        advice = "take a draft of the target's family: token ids mean different words otherwise"
        yield warn(_VOCABULARY, f"vocab_size {wide} of the target, {narrow} of the draft", advice)
        return
    ours, theirs = target.tokenizer_digests(), draft.tokenizer_digests()
    shared = sorted(ours.keys() & theirs.keys())
    sizes = f"vocab_size {wide}" if wide is not None and wide == narrow else "vocab_size not said by both"
    if not shared:
        why = (
            "a head uses its target's"
            if method is not Method.DRAFT_MODEL
            else "one of them has none of the known files"
        )
        yield skip(_VOCABULARY, f"{sizes}; tokenizers are not compared: {why}")
        return
    if any(ours[name] == theirs[name] for name in shared):
        yield ok(_VOCABULARY, f"{sizes}; the same tokenizer")
        return
    yield _tokens(target.tokens, draft.tokens, sizes)


def _tokens(ours: dict[str, int] | None, theirs: dict[str, int] | None, sizes: str) -> Check:
    if ours is None or theirs is None:
        return warn(_VOCABULARY, f"{sizes}; the tokenizer files differ", "make sure that token ids mean the same words")
    differing = sum(theirs.get(token) != number for token, number in ours.items())
    if differing == 0:
        return ok(_VOCABULARY, f"{sizes}; {len(ours)} tokens with the same ids")
    told = f"{sizes}; {differing} of {len(ours)} tokens of the target have another id in the draft, or none"
    if differing <= 0.001 * len(ours):
        return ok(_VOCABULARY, f"{told}: a few special tokens")
    return warn(_VOCABULARY, told, "take a draft with the target's tokenizer: it drafts other words than it means")


def _short(count: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)
