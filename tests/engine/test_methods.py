"""How drafts are made, and what requests ask for: which evidence lands where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.support.engines import Evidence, K, attachment_of, engine, generate, local, params
from tests.engine.support.models import add_tokenizer, make_eagle_head, make_pair
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from accord.hooks.vllm.session import Session
from accord.learner.moments import Moments
from accord.learner.pair import Method

pytestmark = [pytest.mark.engine, pytest.mark.timeout(280)]

# Every step is a round, so that nothing stays in the sums; and observing, all of it is at the cold coefficients.
OBSERVE = {"ACCORD_MODE": "observe", "ACCORD_ROUND_STEPS": "1", "ACCORD_WORKLOADS": "9"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Target and draft, with a tokenizer."""
    target, draft = make_pair(tmp_path_factory.mktemp("models"))
    add_tokenizer(target)
    add_tokenizer(draft)
    return target, draft


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path]) -> Iterator[LLM]:
    """An engine that drafts with a model, a fixed number of tokens, observed."""
    with engine(*pair, OBSERVE, tokenizer=True) as running:
        yield running


def learnt(llm: LLM, *wanted: SamplingParams) -> dict[str, Moments]:
    """What these requests teach, by workload."""
    with Evidence(local(llm)) as evidence:
        generate(llm, wanted)
        return evidence.total()


def test_observe_measures_fixed_drafts(llm: LLM) -> None:
    """Without adaptive verification each mixed-batch request teaches its own workload, as many labels as it has."""
    session = local(llm)
    moments = learnt(
        llm, params("code"), params("chat", temperature=0.7, seed=1), params(None, temperature=1.0, seed=2)
    )
    assert set(moments) == {"code:greedy", "chat:warm", "default:sampled"}
    for sums in moments.values():
        # Labels are the accepted drafts and at most one rejected draft a step.
        assert 0 < sums.n.sum() <= K * session.steps
        assert (sums.y <= sums.n).all()
        assert np.all(np.diff(sums.n[0]) <= 0)
    assert session.agent is not None
    assert session.agent.applied.state == "observe"
    assert not session.errors


def test_tokens_and_labels_agree(llm: LLM) -> None:
    """Accepted drafts are the tokens that no step of its own was needed for."""
    session = local(llm)
    before = session.steps
    with Evidence(session) as evidence:
        (answer,) = generate(llm, [params("solo", tokens=25)])
        (moments,) = evidence.total().values()
    steps = session.steps - before
    # The first step reads the prompt and gives one token; a step's drafts beyond the last token count as well.
    assert 0 <= moments.y.sum() - (len(answer) - steps) <= K


def same(ours: Moments, theirs: Moments) -> None:
    """Equal but for the order in which a batch is computed."""
    np.testing.assert_array_equal(ours.n, theirs.n)
    np.testing.assert_array_equal(ours.y, theirs.y)
    for name in ("A", "B", "c", "g0", "g1"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-3, atol=1e-3, err_msg=name)


def test_constrained_requests_teach_no_key_but_their_own(llm: LLM) -> None:
    """Penalties and structured output beside a plain request leave what that one teaches as it is."""
    alone = learnt(llm, params("code", tokens=20))
    grammar = StructuredOutputsParams(regex="[a-z]{50}")
    beside = learnt(
        llm,
        params("code", tokens=20),
        params("code", tokens=20, repetition_penalty=1.3),
        params("code", tokens=20, structured_outputs=grammar),
        params("chat", tokens=20, temperature=1.0, seed=4, presence_penalty=0.5),
    )
    assert set(alone) == {"code:greedy"}
    assert set(beside) == {"code:greedy", "code:constrained", "chat:constrained"}
    same(beside["code:greedy"], alone["code:greedy"])
    assert beside["code:constrained"].n.sum() > 0


def test_bad_labels_cost_nothing(llm: LLM) -> None:
    """Labels of every wrong kind are answered like any other, and count as default."""
    session = local(llm)
    bad: list[Any] = [7, ["code"], "a" * 1000, "a\nb", "UPPER", "\x00", {"a": 1}, ""]
    moments = learnt(llm, *(params(label, tokens=4) for label in bad))
    assert set(moments) == {"default:greedy"}
    assert not session.errors


def test_thousands_of_labels_share_what_is_left(llm: LLM) -> None:
    """More labels than slots overflow into `other` of their class, and every label counted is somebody's."""
    session = local(llm)
    many = [params(f"tenant-{at}", tokens=3) for at in range(24)]
    moments = learnt(llm, *many)
    assert "other:greedy" in moments
    assert len({key for key in session._slots.keys if key is not None}) <= 9
    assert not session.errors


@pytest.fixture(scope="module")
def eagle(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, llm: LLM) -> Iterator[LLM]:
    """An engine that drafts with an EAGLE head; requested last, because the other one is in this process too."""
    head = make_eagle_head(pair[0], tmp_path_factory.mktemp("head"))
    with engine(pair[0], head, OBSERVE, method="eagle") as running:
        yield running


def test_eagle_is_observed(eagle: LLM) -> None:
    """A tiny random EAGLE head is measured like a draft model."""
    attachment = eagle.collective_rpc(attachment_of)[0]
    session: Session = attachment.session
    assert session.agent is not None
    assert session.agent.pair.method is Method.EAGLE
    moments = learnt(eagle, params("code", tokens=16), params("chat", tokens=16, temperature=1.0, seed=3))
    assert set(moments) == {"code:greedy", "chat:sampled"}
    assert all(sums.n.sum() > 0 for sums in moments.values())
    assert not session.errors
