"""Which pair results: from options, or from what `vllm serve` is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accord.learner.errors import InvalidValue
from accord.learner.pair import DraftSampling, Method

from ..vllm.identity import pair_of
from ..vllm.notice import IncompatibleError
from .facts import Facts
from .report import Check, fail, ok, skip

_BY_NAME = (("eagle-", Method.EAGLE), ("eagle3", Method.EAGLE3), ("dflash", Method.DFLASH), ("dspark", Method.DSPARK))
_GIVEN = {Method.EAGLE, Method.EAGLE3, Method.DFLASH, Method.DSPARK}
_ASK = "pass --model NAME --speculative-config JSON as vLLM gets them, or --target --draft --method --k"


@dataclass(frozen=True)
class Asked:
    """What the command line says of the models.

    Attributes:
        model: of `vllm serve MODEL`, or --target.
        config: of --speculative-config, with the other options put in.
        problem: why there is none, if it was given and cannot be read.
    """

    model: str | None
    config: Mapping[str, Any] | None
    problem: str = ""

    @classmethod
    def of(
        cls,
        model: str | None,
        speculative_config: str | None,
        draft: str | None,
        method: str | None,
        draft_sampling: str | None,
        k: int | None,
    ) -> Asked:
        """Options win over the JSON."""
        config: dict[str, Any] = {}
        if speculative_config is not None:
            try:
                read = json.loads(speculative_config)
            except (ValueError, RecursionError) as error:
                return cls(model, None, f"--speculative-config is not JSON: {error}")
            if not isinstance(read, dict):
                return cls(model, None, "--speculative-config is not a JSON object")
            config = read
        options = {"model": draft, "method": method, "draft_sample_method": draft_sampling, "num_speculative_tokens": k}
        config |= {name: value for name, value in options.items() if value is not None}
        return cls(model, config or None)

    @property
    def draft(self) -> str | None:
        """The draft model; the target itself where it drafts with a part of its own."""
        named = (self.config or {}).get("model")
        return str(named) if named else self.model


def check_pair(facts: Facts, asked: Asked) -> Iterator[Check]:
    """The pair id, by the code that the plugin uses; fills in the pair and whether vLLM acts on predictions."""
    if asked.problem:
        yield fail("pair", asked.problem, "quote the JSON in single quotes, as for vllm serve")
        return
    if asked.config is None or asked.model is None:
        missing = "the target model" if asked.config is not None else "how drafts are made"
        yield skip("pair", f"nobody said {missing}, so what depends on the pair is not checked", _ASK)
        return
    if "enable_adaptive_verification" in asked.config:
        facts.adaptive = bool(asked.config["enable_adaptive_verification"])
    k = asked.config.get("num_speculative_tokens")
    if k is None:
        yield fail("pair", "num_speculative_tokens is not said", f"vLLM may read it from the draft's files; {_ASK}")
        return
    if k == 0:
        facts.stock = "K = 0: nothing is drafted"
        yield fail("pair", facts.stock, "set num_speculative_tokens to 3 to 8, or switch speculative decoding off")
        return
    try:
        facts.pair = pair_of(_as_vllm(asked.model, asked.config), facts.environ)
    except IncompatibleError as error:
        facts.stock = str(error)
        advice = f"vLLM works as without accord; methods with an estimator: {', '.join(Method)}"
        yield fail("pair", facts.stock, advice)
        return
    except (InvalidValue, TypeError, ValueError) as error:
        facts.stock = str(error)
        yield fail("pair", str(error), "correct it, or name the models with ACCORD_TARGET and ACCORD_DRAFT")
        return
    pair = facts.pair
    told = f"{pair.id} (target {pair.target}, draft {pair.draft}, {pair.method}, {pair.draft_sampling}, K = {pair.k})"
    yield ok("pair", told)


def _as_vllm(model: str, config: Mapping[str, Any]) -> Any:
    """As much of vLLM's configuration as the plugin reads, with the method found as vLLM finds it."""
    draft, sampling = config.get("model"), config.get("draft_sample_method")
    if sampling is not None and sampling not in set(DraftSampling):
        raise InvalidValue("draft_sampling", sampling, f"must be one of {', '.join(DraftSampling)}")
    method = _method(config.get("method"), str(draft or ""))
    if draft is None and method != Method.MTP and method in (Method.EAGLE, Method.EAGLE3, Method.DRAFT_MODEL):
        raise InvalidValue("model", None, f"method {method} needs a draft model")
    return SimpleNamespace(
        model_config=SimpleNamespace(model=model),
        speculative_config=SimpleNamespace(
            method=method,
            model=draft,
            draft_model_config=None,
            draft_sample_method=sampling,
            num_speculative_tokens=config["num_speculative_tokens"],
        ),
    )


def _method(given: Any, draft: str) -> str:
    """As vLLM 0.30 to 0.33 does: most methods are recognised by the draft's name or its config, whatever was given."""
    if given in _GIVEN or (given is not None and given != Method.DRAFT_MODEL and not str(given).endswith("mtp")):
        return str(given)
    if given is not None and str(given).endswith("mtp"):
        return Method.MTP.value
    if given is None and draft in ("ngram", "[ngram]"):
        return "ngram"
    for part, method in _BY_NAME:
        if part in draft.lower():
            return method.value
    kind = _model_type(draft)
    if kind.endswith("mtp"):
        return Method.MTP.value
    return kind if kind in ("medusa", "mlp_speculator") else Method.DRAFT_MODEL.value


def _model_type(draft: str) -> str:
    try:
        return str(json.loads((Path(draft) / "config.json").read_bytes()).get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""
