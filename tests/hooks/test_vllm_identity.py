from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accord.hooks.settings import Mode, SettingError
from accord.hooks.vllm.identity import COST_POINTS, cost_tables, identity_of, pair_of, settings_of, was_asked_for
from accord.hooks.vllm.notice import IncompatibleError
from accord.learner.errors import InvalidValue
from accord.learner.pair import DraftSampling, Method, Pair


def config(**changes: Any) -> SimpleNamespace:
    """What vLLM knows, as far as it is asked."""
    speculative = {
        "method": "eagle",
        "model": "org/EAGLE-8B",
        "draft_model_config": SimpleNamespace(model="org/EAGLE-8B"),
        "draft_sample_method": "greedy",
        "num_speculative_tokens": 5,
        "enable_adaptive_verification": True,
    }
    parallel = {
        "data_parallel_rank": 0,
        "data_parallel_size": 1,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
    }
    for values in (speculative, parallel):
        values.update({name: value for name, value in changes.items() if name in values})
    return SimpleNamespace(
        model_config=SimpleNamespace(model=changes.get("target", "meta/Target-8B")),
        speculative_config=SimpleNamespace(**speculative),
        parallel_config=SimpleNamespace(**parallel),
    )


def test_the_pair_is_what_vllm_was_started_with() -> None:
    """Target, draft, method, sampling mode and K come from vLLM's configuration."""
    expected = Pair("meta/Target-8B", "org/EAGLE-8B", Method.EAGLE, DraftSampling.GREEDY, 5)
    assert pair_of(config(), {}) == expected
    assert pair_of(config(draft_sample_method="probabilistic"), {}).draft_sampling is DraftSampling.PROBABILISTIC


def test_heads_inside_the_target_are_named_after_it() -> None:
    """MTP drafts with the target's own layers."""
    mtp = config(method="mtp", model=None, draft_model_config=SimpleNamespace(model="meta/Target-8B"))
    assert pair_of(mtp, {}).draft == "meta/Target-8B"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/Target-8B", "Target-8B"),
        ("/cache/models--meta--Target-8B/snapshots/abc", "meta/Target-8B"),
        ("meta/Target-8B", "meta/Target-8B"),
    ],
)
def test_a_local_path_does_not_tell_hosts_apart(path: str, name: str) -> None:
    """The same model has the same name wherever a host keeps it."""
    assert pair_of(config(target=path), {}).target == name


def test_the_operator_may_name_the_models() -> None:
    """ACCORD_TARGET and ACCORD_DRAFT win."""
    pair = pair_of(config(), {"ACCORD_TARGET": "a", "ACCORD_DRAFT": "b"})
    assert (pair.target, pair.draft) == ("a", "b")


@pytest.mark.parametrize("method", ["ngram", "medusa", "extract_hidden_states", "suffix"])
def test_methods_without_draft_logits_are_named(method: str) -> None:
    """What cannot be estimated is said by name."""
    with pytest.raises(IncompatibleError, match=method):
        pair_of(config(method=method), {})


def test_no_speculation_is_said() -> None:
    """Without speculative decoding there is nothing to estimate."""
    with pytest.raises(IncompatibleError, match="no speculative decoding"):
        pair_of(SimpleNamespace(speculative_config=None), {})


def test_no_drafts_are_refused() -> None:
    """K = 0 is no pair."""
    with pytest.raises(InvalidValue, match="k = 0"):
        pair_of(config(num_speculative_tokens=0), {})


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, Mode.LOCAL),
        ({"ACCORD_REDIS_URL": "redis://h"}, Mode.FLEET),
        ({"ACCORD_API_URL": "http://h"}, Mode.FLEET),
        ({"ACCORD_MODE": "observe"}, Mode.OBSERVE),
        ({"ACCORD_MODE": "fleet"}, Mode.FLEET),
    ],
)
def test_without_a_service_the_engine_refits_itself(environment: dict[str, str], mode: Mode) -> None:
    """The mode is local unless a service or a mode is configured."""
    assert settings_of(config(), environment).mode is mode
    assert was_asked_for(environment) == bool(environment)


def test_every_data_parallel_rank_is_an_engine() -> None:
    """Names end with the rank, given or not, and one engine alone keeps the name that it was given."""
    ranks = [config(data_parallel_rank=rank, data_parallel_size=3) for rank in range(3)]
    default = [settings_of(rank, {}).engine for rank in ranks]
    assert [name.rsplit("/", 1)[1] for name in default] == ["0", "1", "2"]
    assert len({name.rsplit("/", 1)[0] for name in default}) == 1
    named = {"ACCORD_ENGINE": "rack-7"}
    assert [settings_of(rank, named).engine for rank in ranks] == ["rack-7/0", "rack-7/1", "rack-7/2"]
    assert settings_of(config(), named).engine == "rack-7"


def test_a_bad_setting_names_its_variable() -> None:
    """Errors name the variable and show the value."""
    with pytest.raises(SettingError, match="ACCORD_MODE = 'fleeet'"):
        settings_of(config(), {"ACCORD_MODE": "fleeet"})


def test_the_identity_tells_where_and_how() -> None:
    """Host, ranks, versions and whether vLLM acts on predictions."""
    identity = identity_of(config(data_parallel_rank=2))
    assert identity["host"]
    assert (identity["dp_rank"], identity["tp_size"], identity["adaptive_verification"]) == (2, 2, True)
    assert isinstance(identity["vllm"], str)


def test_cost_tables_are_told_by_their_corners() -> None:
    """Each level is told once, by the largest size that has it, and a smooth table is thinned with its end kept."""
    steps = np.repeat([1.0, 2.0, 4.0], [3, 5, 8])
    smooth = np.linspace(1.0, 9.0, 5000)
    told = cost_tables(SimpleNamespace(cost_tables=(steps, smooth)))
    assert told is not None
    assert told["draft_ms_by_requests"] == [[2, 1.0], [7, 2.0], [15, 4.0]]
    verify = told["verify_ms_by_tokens"]
    assert len(verify) <= COST_POINTS
    assert verify[-1] == [4999, 9.0]


@pytest.mark.parametrize("manager", [None, SimpleNamespace(), SimpleNamespace(cost_tables=None)])
def test_no_cost_tables_are_none(manager: Any) -> None:
    """An engine without adaptive verification has none, also while it profiles."""
    assert cost_tables(manager) is None
