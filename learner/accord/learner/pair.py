"""The identity of a pair: whose acceptance is being estimated."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .errors import InvalidValue

MAX_K = 64
PAIR_ID = r"[a-z0-9][a-z0-9._-]{0,127}"
"""Regular expression of a whole pair id."""
_NAME_LIMIT = 256


class Method(StrEnum):
    """How drafts are proposed."""

    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    DFLASH = "dflash"
    DSPARK = "dspark"
    DRAFT_MODEL = "draft_model"


class DraftSampling(StrEnum):
    """How the draft model picks its token."""

    GREEDY = "greedy"
    PROBABILISTIC = "probabilistic"


@dataclass(frozen=True)
class Pair:
    """Target model, draft model, method, draft sampling mode and K: what coefficients are valid for.

    Args:
        target, draft: model names, 1 to 256 printable characters.
        method: how drafts are proposed.
        draft_sampling: greedy and probabilistic drafts of the same models have different coefficients.
        k: number of draft positions, 1 to 64.

    >>> Pair("Llama-3.1-8B", "EAGLE-Llama-3.1-8B", Method.EAGLE, DraftSampling.GREEDY, 5).id
    'llama-3.1-8b.eagle-llama-3.1-8b.eagle.greedy.k5-4c479f12'
    """

    target: str
    draft: str
    method: Method
    draft_sampling: DraftSampling
    k: int

    def __post_init__(self) -> None:
        for field in ("target", "draft"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value or len(value) > _NAME_LIMIT or not value.isprintable():
                raise InvalidValue(field, value, f"must be 1 to {_NAME_LIMIT} printable characters")
        for field, kind in (("method", Method), ("draft_sampling", DraftSampling)):
            value = getattr(self, field)
            try:
                object.__setattr__(self, field, kind(value))
            except ValueError:
                known = ", ".join(member.value for member in kind)
                raise InvalidValue(field, value, f"must be one of {known}") from None
        check_k(self.k)

    @property
    def id(self) -> str:
        """A readable, URL-safe and collision-free name: `target.draft.method.mode.kK-hash`."""
        readable = [_slug(_last_part(self.target)), _slug(_last_part(self.draft)), _slug(self.method.value)]
        digest = hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
        return f"{'.'.join(readable)}.{self.draft_sampling.value}.k{self.k}-{digest}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the names that traces and the wire use."""
        return {
            "target": self.target,
            "draft": self.draft,
            "method": self.method.value,
            "draft_sample_method": self.draft_sampling.value,
            "k": self.k,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Pair:
        """The inverse of `to_dict`; raises InvalidValue for a missing, unknown or malformed field."""
        if not isinstance(values, Mapping):
            raise InvalidValue("pair", values, "must be an object")
        names = {"target", "draft", "method", "draft_sample_method", "k"}
        for name in sorted(names - set(values)):
            raise InvalidValue("pair", dict(values), f"field {name} is missing")
        for name in sorted(set(values) - names):
            raise InvalidValue("pair", dict(values), f"field {name} is not known")
        return cls(values["target"], values["draft"], values["method"], values["draft_sample_method"], values["k"])


def check_k(k: object) -> int:
    """K as an int from 1 to 64, or InvalidValue."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise InvalidValue("k", k, f"must be a whole number from 1 to {MAX_K}")
    return k


def check_pair_id(text: object) -> str:
    """A pair id that is safe in a Redis key, a URL and a file name, or InvalidValue."""
    if not isinstance(text, str) or not re.fullmatch(PAIR_ID, text):
        raise InvalidValue("pair", text, f"must match {PAIR_ID}")
    return text


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:32].strip("-._") or "x"
