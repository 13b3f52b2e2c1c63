"""What an audit concludes, and what it says to check next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accord.api.audit_engine.judge import Judgement, judge, pays
from accord.api.audit_engine.window import Window
from accord.learner.advice import Pays


def seen(shares: list[float], /, drafts: float = 5000.0, **more: object) -> Window:
    """A window in which blocks survived like this."""
    accepted = drafts * sum(shares)
    whole = Window(
        since_start=False,
        drafts=drafts,
        draft_tokens=drafts * len(shares),
        accepted=accepted,
        generated=drafts + accepted,
        survival=np.array(shares),
        running=4.0,
        waiting=0.0,
        notes=[],
    )
    return replace(whole, **more)  # type: ignore[arg-type]


def hints(window: Window, draft_ratio: float | None = None) -> str:
    """Everything that is to be checked next."""
    return "\n".join(judge(window, draft_ratio).check_next)


def test_figures() -> None:
    """Acceptance by position, conditional acceptance, lengths and tokens for every K follow from the survival."""
    found = judge(seen([0.8, 0.6, 0.36]))
    assert found.acceptance == pytest.approx([0.8, 0.6, 0.36])
    assert found.conditional == pytest.approx([0.8, 0.75, 0.6])
    assert found.mean_accepted_length == pytest.approx(1.76)
    assert found.tokens_by_k == pytest.approx([1.0, 1.8, 2.4, 2.76])
    assert (found.k, found.verdict, found.check_next) == (3, Pays.HELPS, [])


def test_without_positions_the_mean_is_known() -> None:
    """An engine that does not count by position gets K from its drafts, and the same verdict, but no table."""
    found = judge(seen([0.7, 0.5, 0.2], survival=None))
    assert (found.k, found.acceptance, found.tokens_by_k, found.best_k) == (3, None, None, None)
    assert found.tokens_per_step == pytest.approx(2.4)
    assert found.verdict is judge(seen([0.7, 0.5, 0.2])).verdict is Pays.MARGINAL


@pytest.mark.parametrize(("drafts", "words"), [(0.0, "nothing was drafted"), (199.0, "199 drafts are too few")])
def test_too_little_traffic(drafts: float, words: str) -> None:
    """Below the least number of drafts there is no verdict."""
    found = judge(seen([0.5], drafts=drafts, survival=None if drafts == 0.0 else np.array([0.5])))
    assert found.verdict is Pays.UNKNOWN
    assert words in found.message


def test_draft_tokens_without_drafts() -> None:
    """Where drafts are not counted the accepted share is told, and that the length cannot be."""
    found = judge(seen([0.5], drafts=0.0, survival=None, draft_tokens=1000.0, accepted=400.0))
    assert found.verdict is Pays.UNKNOWN
    assert "40% of the draft tokens are accepted" in found.message


def test_a_ratio_decides() -> None:
    """With the cost of a draft token the verdict is arithmetic, and the best K is named."""
    dear, cheap = judge(seen([0.8, 0.6, 0.3]), 0.8), judge(seen([0.8, 0.6, 0.3]), 0.05)
    assert (dear.verdict, dear.best_k) == (Pays.HURTS, 0)
    assert (cheap.verdict, cheap.best_k) == (Pays.HELPS, 3)
    assert cheap.gain == pytest.approx(2.7 / 1.15)


def test_hints_at_k() -> None:
    """Positions that hardly survive call for a smaller K, a last one that often does for a larger."""
    assert "K: from position 2 on, fewer than 10% of the drafts survive; try K = 2" in hints(
        seen([0.6, 0.2, 0.05, 0.01])
    )
    assert "K: the last of 2 positions still survives 75% of the time; try a larger K" in hints(seen([0.9, 0.75]))
    assert "K:" not in hints(seen([0.8, 0.6, 0.3]))


def test_hints_at_draft_and_temperature() -> None:
    """A weak first position points at temperature and draft; one that fades within the block at the drafter."""
    weak = hints(seen([0.4, 0.3]))
    assert "temperature: the first draft token is accepted only 40%" in weak
    assert "draft: if temperature 0 is no better" in weak
    assert "draft: acceptance falls from 90% at the first position to 50% at position 1" in hints(seen([0.9, 0.45]))
    assert "temperature" not in hints(seen([0.9, 0.45]))


def test_hints_at_cost_and_load() -> None:
    """What does not clearly pay names the cost at which it would; a busy engine is told that verifying is not free."""
    assert "draft size: K = 2 pays only while drafting a token costs less than 35%" in hints(seen([0.5, 0.2]))
    assert "draft size" not in hints(seen([0.9, 0.8]))
    assert "batch size: 64 requests are running" in hints(seen([0.9, 0.8], running=64.0))
    assert "batch size" not in hints(seen([0.9, 0.8], running=None))


def test_notes() -> None:
    """Short blocks, tokens from steps without drafts and waiting requests are noted."""
    short = judge(seen([0.8, 0.6], draft_tokens=6000.0)).notes
    assert any("drafts 1.2 of 2 tokens on average" in note for note in short)
    window = seen([0.8, 0.6])
    assert any(
        "50% of the tokens came from steps without drafts" in note
        for note in judge(replace(window, generated=24000.0)).notes
    )
    assert any("7 requests are waiting" in note for note in judge(replace(window, waiting=7.0)).notes)
    assert judge(window).notes == []


def test_the_word_on_all_engines() -> None:
    """One engine that it hurts decides; else one that it helps; engines without traffic do not."""

    def word(*verdicts: Pays) -> Pays:
        judgements: list[Judgement] = [replace(judge(seen([0.5])), verdict=verdict) for verdict in verdicts]
        return pays(judgements)

    assert word(Pays.HELPS, Pays.HURTS) is Pays.HURTS
    assert word(Pays.UNKNOWN, Pays.MARGINAL) is Pays.MARGINAL
    assert word(Pays.UNKNOWN, Pays.HELPS, Pays.MARGINAL) is Pays.HELPS
    assert word(Pays.UNKNOWN) is word() is Pays.UNKNOWN
