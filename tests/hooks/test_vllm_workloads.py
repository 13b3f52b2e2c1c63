from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.hooks.settings import SettingError
from accord.hooks.vllm.workloads import LabelRules, is_constrained, workload_key, workload_slots
from accord.learner.workload import WorkloadKey

RULES = LabelRules()


def asked(extra: object = None, temperature: object = 1.0, **more: Any) -> SimpleNamespace:
    """Sampling parameters as vLLM has them."""
    return SimpleNamespace(extra_args=extra, temperature=temperature, **more)


LORA = SimpleNamespace(lora_name="Org/SQL Adapter")


def test_the_label_comes_from_extra_args_then_lora_then_default() -> None:
    """What a request names wins over its adapter, which wins over `default`."""
    assert workload_key(asked({"workload": "code"}), LORA, RULES) == "code:sampled"
    assert workload_key(asked({"other": 1}), LORA, RULES) == "org-sql-adapter:sampled"
    assert workload_key(asked(), None, RULES) == "default:sampled"


def test_the_operator_sets_the_order() -> None:
    """With the adapter first, or no source at all, requests do not decide."""
    lora_first = LabelRules.from_env({"ACCORD_LABEL_ORDER": "lora, workload"})
    none = LabelRules.from_env({"ACCORD_LABEL_ORDER": "none"})
    assert workload_key(asked({"workload": "code"}), LORA, lora_first) == "org-sql-adapter:sampled"
    assert workload_key(asked({"workload": "code"}), None, lora_first) == "code:sampled"
    assert workload_key(asked({"workload": "code"}), LORA, none) == "default:sampled"


def test_labels_that_are_not_allowed_fall_through() -> None:
    """The allow-list holds for both sources."""
    rules = LabelRules.from_env({"ACCORD_LABELS": "code,org-sql-adapter"})
    assert workload_key(asked({"workload": "spam"}), LORA, rules) == "org-sql-adapter:sampled"
    assert workload_key(asked({"workload": "spam"}), None, rules) == "default:sampled"
    assert workload_key(asked({"workload": "code"}), None, rules) == "code:sampled"


@pytest.mark.parametrize(
    ("temperature", "kind"),
    [(0, "greedy"), (0.5, "cool"), (0.7, "warm"), (1.0, "sampled"), (1.5, "hot")],
)
def test_the_class_comes_from_the_temperature(temperature: float, kind: str) -> None:
    """Temperature bands are those of workload keys."""
    assert workload_key(asked(temperature=temperature), None, RULES) == f"default:{kind}"


@pytest.mark.parametrize(
    "transform",
    [
        {"repetition_penalty": 1.1},
        {"frequency_penalty": -0.5},
        {"presence_penalty": 0.1},
        {"min_tokens": 3},
        {"bad_words": ["no"]},
        {"logit_bias": {3: 1.0}},
        {"allowed_token_ids": [1, 2]},
        {"structured_outputs": SimpleNamespace(json="{}")},
        {"thinking_token_budget": 100},
        {"trace_decode_token_ids": [1]},
    ],
    ids=lambda transform: next(iter(transform)),
)
def test_transforms_of_the_target_alone_are_constrained(transform: dict[str, Any]) -> None:
    """Whatever the target applies and the draft does not see puts a request into a class of its own."""
    assert workload_key(asked(temperature=0, **transform), None, RULES) == "default:constrained"


def test_ordinary_sampling_is_not_constrained() -> None:
    """top_p, top_k, min_p, and transforms that change nothing, are ordinary."""
    neutral = {
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "min_tokens": 0,
        "bad_words": [],
        "logit_bias": None,
    }
    assert not is_constrained(asked(top_p=0.5, top_k=3, min_p=0.1, structured_outputs=None, **neutral))


def test_custom_logits_processors_constrain_every_request() -> None:
    """Nobody but they knows which requests they change."""
    assert workload_key(asked(), None, RULES, custom_processors=True) == "default:constrained"


BAD = [
    7,
    None,
    b"code",
    ["code"],
    {},
    "",
    "Code",
    "a b",
    "a" * 65,
    "x" * 10_000_000,
    "a\nb",
    "code\n",
    "\x00",
    "ä",
    "-a",
]


@pytest.mark.parametrize("label", BAD, ids=lambda label: repr(label)[:12])
def test_a_bad_label_counts_as_none(label: object) -> None:
    """A label of the wrong type, length or alphabet is as if it had not been there."""
    assert workload_key(asked({"workload": label}), None, RULES) == "default:sampled"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.binary(), st.lists, max_leaves=5))
def test_nothing_that_a_client_sends_fails(value: object) -> None:
    """Any label, any extra arguments, any temperature and any adapter name give a well-formed key."""
    for request in (asked({"workload": value}), asked(value), asked(temperature=value)):
        for lora in (None, SimpleNamespace(lora_name=value)):
            WorkloadKey.parse(workload_key(request, lora, RULES))


def test_a_request_without_sampling_parameters_has_a_key() -> None:
    """Requests that sample nothing count as default."""
    assert workload_key(None, None, RULES) == "default:sampled"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCORD_LABEL_ORDER", "lora,header"),
        ("ACCORD_LABEL_ORDER", "lora,lora"),
        ("ACCORD_LABELS", "Code"),
        ("ACCORD_LABELS", "a b"),
    ],
)
def test_a_bad_rule_names_its_variable(variable: str, value: str) -> None:
    """Errors of settings name the variable and show the value."""
    with pytest.raises(SettingError, match=rf"{variable} = '{value}'"):
        LabelRules.from_env({variable: value})


def test_rules_travel_to_other_ranks() -> None:
    """Rules survive as plain values."""
    for env in ({}, {"ACCORD_LABELS": "a,b", "ACCORD_LABEL_ORDER": "none"}):
        rules = LabelRules.from_env(env)
        assert LabelRules.from_dict(rules.to_dict()) == rules


def test_the_number_of_slots_is_bounded() -> None:
    """ACCORD_WORKLOADS is 32 unless it says 7 to 32."""
    assert workload_slots({}) == 32
    assert workload_slots({"ACCORD_WORKLOADS": "9"}) == 9
    for value in ("6", "33", "many", "-8"):
        with pytest.raises(SettingError, match=rf"ACCORD_WORKLOADS = '{value}'"):
            workload_slots({"ACCORD_WORKLOADS": value})
