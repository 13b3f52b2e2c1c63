"""Metrics pages of several versions of vLLM, and hostile ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.metrics_server import PAGES, saved

from accord.api.audit_engine.address import Address, AuditError
from accord.api.audit_engine.page import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    EMITTED,
    GENERATED,
    MAX_ENGINES,
    MAX_LINES,
    Counters,
    parse,
    title,
)
from accord.api.audit_engine.window import Window, between
from accord.learner.errors import InvalidValue

ENGINE = (("engine", "0"), ("model_name", "acme/target-8b"))


def window(before: str, after: str) -> Window:
    """Between two saved pages, at their only or first engine."""
    first, second = parse(saved(before)).engines, parse(saved(after)).engines
    key = sorted(second)[0]
    return between(first.get(key), second[key])


def test_a_page_of_the_v1_engine() -> None:
    """Counters, positions and gauges of the engine are read by its labels; nothing else is."""
    page = parse(saved("0.10-b"))
    assert (list(page.engines), page.vllm, page.adaptive, page.unreadable) == ([ENGINE], True, False, 0)
    assert page.engines[ENGINE] == Counters(
        {GENERATED: 27200.0, DRAFTS: 10000.0, DRAFT_TOKENS: 30000.0, ACCEPTED: 15900.0},
        {0: 7700.0, 1: 5300.0, 2: 2900.0},
        5.0,
        0.0,
    )


def test_a_page_of_the_v0_engine() -> None:
    """The old engine has no engine label, no drafts and no positions, but emitted tokens."""
    page = parse(saved("0.10-v0-b"))
    (key,) = page.engines
    assert key == (("model_name", "acme/target-8b"),)
    assert page.engines[key].counts[EMITTED] == 20200.0
    assert (DRAFTS in page.engines[key].counts, page.engines[key].by_position) == (False, {})


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.txt")))
def test_every_spelling_reads_the_same(name: str) -> None:
    """Without `_total`, with Ray's prefix, and with Windows' line ends a page says the same."""
    text = saved(name)
    wanted = parse(text)
    assert parse(text.replace("_total{", "{")) == wanted
    assert parse(text.replace("\nvllm:", "\nray_vllm_")) == wanted
    assert parse(text.replace("\n", "\r\n")) == wanted


@pytest.mark.parametrize(
    ("name", "drafts", "tokens", "survival"),
    [
        ("0.10", 2000.0, 3.0, [0.85, 0.7, 0.45]),
        ("0.10-v0", 2000.0, 3.1, None),
        ("0.12-two", 2500.0, 1.64, [0.42, 0.152, 0.052, 0.012, 0.004]),
        ("0.32-adaptive", 10000.0, 3.3, [0.8, 0.58, 0.4, 0.26, 0.15, 0.08, 0.03]),
    ],
)
def test_windows(name: str, drafts: float, tokens: float, survival: list[float] | None) -> None:
    """Between the two readings of each version lie the drafts, tokens per step and survival that its counters say."""
    found = window(f"{name}-a", f"{name}-b")
    assert (found.drafts, found.since_start) == (drafts, False)
    assert found.tokens_per_step == pytest.approx(tokens)
    if survival is None:
        assert found.survival is None
    else:
        assert found.survival == pytest.approx(np.array(survival))


def test_a_restart_between_the_readings() -> None:
    """When a counter fell, what the engine did since its restart is the window, and a note says so."""
    found = window("0.10-b", "0.10-a")
    assert (found.drafts, found.tokens_per_step) == (8000.0, 1.0 + 11900.0 / 8000.0)
    assert "restarted" in found.notes[0]


def test_no_traffic_between_the_readings() -> None:
    """When nothing was drafted, all since the start stands in, and a note says so."""
    found = window("0.10-b", "0.10-b")
    assert (found.since_start, found.drafts) == (True, 10000.0)
    assert "nothing was drafted between" in found.notes[0]


def test_an_engine_that_never_drafted() -> None:
    """Counters at zero are no drafts, and no tokens per step."""
    found = between(
        Counters({DRAFTS: 0.0, DRAFT_TOKENS: 0.0, ACCEPTED: 0.0}), Counters({DRAFTS: 0.0, DRAFT_TOKENS: 0.0})
    )
    assert (found.drafts, found.tokens_per_step, found.survival) == (0.0, None, None)


def test_a_new_engine() -> None:
    """An engine that the first reading did not have is judged since its start."""
    found = between(None, parse(saved("0.10-a")).engines[ENGINE])
    assert (found.since_start, found.drafts) == (True, 8000.0)
    assert "appeared" in found.notes[0]


def test_counts_that_contradict_each_other() -> None:
    """Positions that do not sum to the accepted tokens, rise, or exceed the drafts are noted and bounded."""
    odd = Counters({DRAFTS: 100.0, DRAFT_TOKENS: 200.0, ACCEPTED: 1e9}, {0: 50.0, 1: 900.0})
    found = between(Counters(), odd)
    assert found.accepted == 200.0
    assert found.survival == pytest.approx(np.array([0.5, 0.5]))
    assert any("sums to 950" in note for note in found.notes)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_drafts_total{ 5",
        'vllm:spec_decode_num_drafts_total{engine="0} 5',
        'vllm:spec_decode_num_drafts_total{engine="0"} x',
        'vllm:spec_decode_num_drafts_total{engine="0"} NaN',
        'vllm:spec_decode_num_drafts_total{engine="0"} +Inf',
        'vllm:spec_decode_num_drafts_total{engine="0"} -5',
        'vllm:spec_decode_num_drafts_total{engine="0"} 1e400',
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {"9" * 400}',
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {"9" * 5000}',
        'vllm:spec_decode_num_drafts_total{engine="' + "x" * 5000 + '"} 5',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0"} 5',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="64"} 5',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="-1"} 5',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="٣"} 5',
    ],
)
def test_lines_that_are_none(line: str) -> None:
    """A line that is no finite count is left out and counted; the others are read."""
    page = parse(f"{saved('0.10-b')}{line}\n")
    assert page.unreadable == 1
    assert page.engines[ENGINE] == parse(saved("0.10-b")).engines[ENGINE]


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_a_page(label: str, rest: str) -> None:
    """No text of a server raises anything but the refusal of its size."""
    parse(f'vllm:spec_decode_num_drafts_total{{engine="{label}"}} {rest}\n{rest}\nvllm:generation_tokens_total{label}')


def test_too_many_engines() -> None:
    """More engines than any server has are refused."""
    lines = "".join(f'vllm:num_requests_running{{engine="{at}"}} 1\n' for at in range(MAX_ENGINES + 1))
    with pytest.raises(AuditError, match=f"more than {MAX_ENGINES} engines"):
        parse(lines)


def test_too_many_lines() -> None:
    """More lines of counters than any server has are refused; other lines are skipped, however many and long."""
    with pytest.raises(AuditError, match=f"more than {MAX_LINES} lines"):
        parse('vllm:num_requests_running{engine="0"} 1\n' * (MAX_LINES + 1))
    page = parse("x" * (8 << 20) + "\n" + "y 1\n" * 500_000 + saved("0.10-b"))
    assert list(page.engines) == [ENGINE]


def test_titles_are_safe_for_a_terminal() -> None:
    """What a label cannot print becomes a space, and long labels are cut."""
    page = parse('vllm:num_requests_running{model_name="a\x1b[31mb",engine="' + "e" * 500 + '"} 1\n')
    (key,) = page.engines
    assert title(key) == "a [31mb engine=" + "e" * 128


@pytest.mark.parametrize(
    ("text", "metrics", "base"),
    [
        ("http://h:8000", "http://h:8000/metrics", "http://h:8000"),
        ("http://h:8000/metrics/", "http://h:8000/metrics", "http://h:8000"),
        ("https://h/vllm/v1/", "https://h/vllm/metrics", "https://h/vllm"),
        ("http://[::1]:8000/", "http://[::1]:8000/metrics", "http://[::1]:8000"),
    ],
)
def test_addresses(text: str, metrics: str, base: str) -> None:
    """The server, its metrics page and its OpenAI address all name the same server."""
    assert Address.of(text) == Address(metrics, base)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:8000",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h:0",
        "http://h/?a=b",
        "http://h/#a",
        "http://h\n",
        "x" * 3000,
    ],
)
def test_no_addresses(text: str) -> None:
    """Anything else is refused."""
    if text == "http://h\n":
        assert Address.of(text).base == "http://h"
        return
    with pytest.raises(InvalidValue, match=r"^url = "):
        Address.of(text)


def test_a_password_is_not_shown() -> None:
    """An address with a password is refused without showing it."""
    with pytest.raises(InvalidValue) as refused:
        Address.of("http://user:hunter2@h:8000")
    assert "hunter2" not in str(refused.value)
