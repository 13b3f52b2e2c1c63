"""What the checks learn and the later ones build on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accord.learner.pair import Pair

from ..settings import AgentSettings


@dataclass
class Facts:
    """Filled in on the way.

    Attributes:
        environ: the environment that is looked at.
        settings: None when they cannot be used.
        pair: None while it is not known.
        asked: whether a mode or a service is configured.
        adaptive: whether vLLM acts on predictions; None when nobody said.
        stock: why vLLM would work as without the plugin; empty while nothing speaks against it.
        redis_works: whether evidence would arrive; None while nobody knows.
        api_works: whether coefficients would arrive; None while nobody knows.
        version: of the table that is served, None before one was seen.
        knots: of the registered pair, None while it is not registered as far as is known.
        registered: whether the pair is; None while nobody knows.
        skews_s: how far other clocks are ahead of this one, each with its uncertainty, seconds.
    """

    environ: Mapping[str, str]
    settings: AgentSettings | None = None
    pair: Pair | None = None
    asked: bool = False
    adaptive: bool | None = None
    stock: str = ""
    redis_works: bool | None = None
    api_works: bool | None = None
    api_reason: str = ""
    version: int | None = None
    knots: tuple[float, ...] | None = None
    registered: bool | None = None
    skews_s: dict[str, tuple[float, float]] = field(default_factory=dict)
