"""A vLLM metrics page as counters by engine, whatever its version calls them.

vLLM's V1 engine counts drafts, draft tokens, accepted tokens, and accepted tokens by position since 0.9; the V0 engine,
which 0.10 still carries, counts draft, accepted and emitted tokens, and no drafts. Counters end in `_total` on the page
(not everywhere: an exporter in between may drop it), and Ray's exporter writes `ray_vllm_` for `vllm:`.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_fd_to_metric_families

from accord.learner import plain_text
from accord.learner.pair import MAX_K

from .address import AuditError

MAX_LINES = 50_000
MAX_LINE = 4096
MAX_ENGINES = 256
MAX_LABEL = 128

_SERIES = re.compile(r"(?:ray_)?vllm[:_](?P<name>[a-z0-9_]+)")
_OURS = re.compile(r"accord_[a-z0-9_]+|(?:ray_)?vllm[:_][a-z0-9_]*adaptive_verification[a-z0-9_]*")

DRAFTS = "spec_decode_num_drafts"
DRAFT_TOKENS = "spec_decode_num_draft_tokens"
ACCEPTED = "spec_decode_num_accepted_tokens"
BY_POSITION = "spec_decode_num_accepted_tokens_per_pos"
EMITTED = "spec_decode_num_emitted_tokens"
GENERATED = "generation_tokens"
COUNTERS = (DRAFTS, DRAFT_TOKENS, ACCEPTED, EMITTED, GENERATED)
RUNNING, WAITING = "num_requests_running", "num_requests_waiting"

Labels = tuple[tuple[str, str], ...]


@dataclass
class Counters:
    """One engine's counters at one time.

    Attributes:
        counts: by the names of `COUNTERS`, those that the page has; finite and >= 0.
        by_position: accepted tokens by position.
        running, waiting: requests at that moment, None where the page does not say.
    """

    counts: dict[str, float] = field(default_factory=dict)
    by_position: dict[int, float] = field(default_factory=dict)
    running: float | None = None
    waiting: float | None = None

    @property
    def speculates(self) -> bool:
        """Whether the page has anything about speculation."""
        return any(name in self.counts for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED))


@dataclass
class Page:
    """A metrics page.

    Attributes:
        engines: labels (without `position`) -> counters; engines that the page tells of in any way.
        vllm: whether there is any series of vLLM at all.
        adaptive: whether a series suggests that verification is adaptive.
        unreadable: lines about these counters that are none.
    """

    engines: dict[Labels, Counters]
    vllm: bool
    adaptive: bool
    unreadable: int


def parse(text: str) -> Page:
    """Reads a page; whatever else it holds is skipped before anything is parsed.

    Raises:
        AuditError: for a page with more lines or engines than any server has.
    """
    page = Page({}, False, False, 0)
    kept = 0
    for line in _lines(text):
        found = _SERIES.match(line)
        page.vllm = page.vllm or found is not None
        page.adaptive = page.adaptive or _OURS.match(line) is not None
        name = None if found is None else _known(found["name"])
        if name is None:
            continue
        kept += 1
        if kept > MAX_LINES:
            raise AuditError(f"the page has more than {MAX_LINES} lines of counters")
        if not _take(page, name, line):
            page.unreadable += 1
    return page


def title(labels: Labels) -> str:
    """An engine's labels for people.

    >>> title((("engine", "0"), ("model_name", "m")))
    'm engine=0'
    """
    values = dict(labels)
    model = values.pop("model_name", "")
    text = " ".join([*([model] if model else []), *(f"{name}={value}" for name, value in values.items())]) or "engine"
    return plain(text)


def plain(text: str) -> str:
    """Text from a server, safe for a terminal: what cannot be printed becomes a space."""
    return plain_text.plain(text, " ")


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        # Whatever is longer is no series of ours, and need not be copied to find that out.
        if start < end and text[start] != "#":
            yield text[start : min(end, start + MAX_LINE + 1)]
        start = end + 1


def _known(name: str) -> str | None:
    name = name.removesuffix("_total")
    return name if name in (*COUNTERS, BY_POSITION, RUNNING, WAITING) else None


def _take(page: Page, name: str, line: str) -> bool:
    sample = _sample(line) if len(line) <= MAX_LINE else None
    if sample is None:
        return False
    labels, value = sample
    position = labels.pop("position", None)
    # The first vLLM to have an engine label numbers from 0; without one there is one engine a model.
    key = tuple(sorted((label[:MAX_LABEL], text[:MAX_LABEL]) for label, text in labels.items()))
    if key not in page.engines and len(page.engines) >= MAX_ENGINES:
        raise AuditError(f"the page tells of more than {MAX_ENGINES} engines")
    engine = page.engines.setdefault(key, Counters())
    if name == BY_POSITION:
        if position is None or not re.fullmatch(r"[0-9]{1,2}", position) or int(position) >= MAX_K:
            return False
        engine.by_position[int(position)] = value
    elif name == RUNNING:
        engine.running = value
    elif name == WAITING:
        engine.waiting = value
    else:
        engine.counts[name] = value
    return True


def _sample(line: str) -> tuple[dict[str, str], float] | None:
    try:
        (family,) = text_fd_to_metric_families(io.StringIO(line))
        (sample,) = family.samples
        value = float(sample.value)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
        return None
    return (dict(sample.labels), value) if math.isfinite(value) and value >= 0.0 else None
