"""Which workload a request of vLLM belongs to. Nothing that a client sends can make this fail or grow."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accord.learner.workload import DEFAULT_LABEL, OTHER_LABEL, TemperatureClass, WorkloadKey

from ..settings import SettingError

WORKLOAD, LORA = "workload", "lora"
"""Where a label may come from: `SamplingParams.extra_args["workload"]` (HTTP: `vllm_xargs`), or the LoRA adapter."""

LABELS_VARIABLE, ORDER_VARIABLE, SLOTS_VARIABLE = "ACCORD_LABELS", "ACCORD_LABEL_ORDER", "ACCORD_WORKLOADS"
MOST_SLOTS, FEWEST_SLOTS = 32, len(TemperatureClass) + 1
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_UNUSABLE = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True)
class LabelRules:
    """What the operator allows.

    Attributes:
        order: sources, the first that gives a usable label wins; none of them means that all traffic is `default`.
        allowed: the only labels that are taken, or None for every well-formed one.

    >>> rules = LabelRules.from_env({"ACCORD_LABELS": "code,chat", "ACCORD_LABEL_ORDER": "lora,workload"})
    >>> rules.label({"workload": "code"}, "sql"), rules.label({"workload": "spam"}, None)
    ('code', 'default')
    """

    order: tuple[str, ...] = (WORKLOAD, LORA)
    allowed: frozenset[str] | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> LabelRules:
        """Rules from ACCORD_LABEL_ORDER (`workload,lora`; `none`) and ACCORD_LABELS (labels, separated by commas).

        Raises:
            SettingError: naming the variable and its value.
        """
        env = os.environ if environ is None else environ
        order, labels = env.get(ORDER_VARIABLE, ""), env.get(LABELS_VARIABLE, "")
        sources = cls.order if not order.strip() else () if order.strip() == "none" else _split(order)
        if not set(sources) <= {WORKLOAD, LORA} or len(set(sources)) != len(sources):
            raise SettingError(f"{ORDER_VARIABLE} = {order[:80]!r}: must be some of workload, lora, or none")
        allowed = frozenset(_split(labels)) if labels.strip() else None
        if allowed is not None and not all(_LABEL.fullmatch(label) for label in allowed):
            raise SettingError(f"{LABELS_VARIABLE} = {labels[:80]!r}: labels must match {_LABEL.pattern}")
        return cls(sources, allowed)

    def label(self, extra_args: Any, lora_name: Any) -> str:
        """The label of a request: of `extra_args`, of its LoRA adapter, or `default`."""
        for source in self.order:
            label = _named(extra_args) if source == WORKLOAD else _slug(lora_name)
            if label is not None and (self.allowed is None or label in self.allowed):
                return label
        return DEFAULT_LABEL

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the other ranks."""
        return {"order": list(self.order), "allowed": None if self.allowed is None else sorted(self.allowed)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabelRules:
        """The inverse of `to_dict`."""
        allowed = values["allowed"]
        return cls(tuple(values["order"]), None if allowed is None else frozenset(allowed))


def workload_slots(environ: Mapping[str, str] | None = None) -> int:
    """How many workloads an engine tells apart at a time, `other` of each class among them: ACCORD_WORKLOADS, or 32.

    Raises:
        SettingError: naming the variable and its value.
    """
    text = (os.environ if environ is None else environ).get(SLOTS_VARIABLE, "").strip()
    if not text:
        return MOST_SLOTS
    if not re.fullmatch(r"[0-9]{1,3}", text) or not FEWEST_SLOTS <= int(text) <= MOST_SLOTS:
        raise SettingError(
            f"{SLOTS_VARIABLE} = {text[:80]!r}: must be a whole number from {FEWEST_SLOTS} to {MOST_SLOTS}"
        )
    return int(text)


def workload_key(sampling_params: Any, lora_request: Any, rules: LabelRules, *, custom_processors: bool = False) -> str:
    """`label:class` of a request as vLLM's scheduler hands it to a worker; never raises.

    Args:
        sampling_params: `SamplingParams`, or None for a request that samples nothing.
        lora_request: `LoRARequest`, or None.
        rules: see `LabelRules`.
        custom_processors: whether the engine runs logits processors that are not vLLM's own. Nobody but they knows
            which requests they change, so all requests then count as constrained.
    """
    try:
        label = rules.label(getattr(sampling_params, "extra_args", None), getattr(lora_request, "lora_name", None))
        temperature = float(getattr(sampling_params, "temperature", 1.0))
        constrained = custom_processors or is_constrained(sampling_params)
        return f"{label}:{TemperatureClass.of(temperature, constrained=constrained).value}"
    except Exception:  # noqa: BLE001  # no request may fail for what it asks of us
        return str(WorkloadKey(OTHER_LABEL, TemperatureClass.CONSTRAINED))


def is_constrained(params: Any) -> bool:
    """Whether the target applies transforms to this request that the draft does not know of: the list is in
    `docs/workloads.md`.

    top_p, top_k and min_p are not among them: calibration learns their effect as it learns any traffic.
    """
    return (
        getattr(params, "repetition_penalty", 1.0) != 1.0
        or getattr(params, "frequency_penalty", 0.0) != 0.0
        or getattr(params, "presence_penalty", 0.0) != 0.0
        or (getattr(params, "min_tokens", 0) or 0) > 0
        or any(getattr(params, name, None) is not None for name in _PRESENT)
        or any(bool(getattr(params, name, None)) for name in _FILLED)
    )


_PRESENT = ("structured_outputs", "allowed_token_ids", "thinking_token_budget", "trace_decode_token_ids")
_FILLED = ("logit_bias", "bad_words", "_bad_words_token_ids")


def _named(extra_args: Any) -> str | None:
    label = extra_args.get("workload") if isinstance(extra_args, dict) else None
    # The length first: no pattern should run over a megabyte.
    well_formed = isinstance(label, str) and len(label) <= 64 and _LABEL.fullmatch(label) is not None
    return label if well_formed else None


def _slug(name: Any) -> str | None:
    """A LoRA adapter's name in the alphabet of labels, or None when nothing of it is left."""
    return _slug_of(name[:256]) if isinstance(name, str) else None


@functools.lru_cache(maxsize=1024)
def _slug_of(name: str) -> str | None:
    label = _UNUSABLE.sub("-", name.lower()).strip("-._")[:64]
    return label if _LABEL.fullmatch(label) else None


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
