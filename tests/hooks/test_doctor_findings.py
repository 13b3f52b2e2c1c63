from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from accord.hooks.doctor.bounded import bounded
from accord.hooks.doctor.environment import check_environment, is_local, secrets_of
from accord.hooks.doctor.facts import Facts
from accord.hooks.doctor.pairing import Asked, check_pair
from accord.hooks.doctor.report import Check, Report, Status, fail, ok, skip, warn


def environment(**variables: str) -> tuple[list[Check], Facts]:
    """What the check says of an environment."""
    facts = Facts(variables)
    return list(check_environment(facts)), facts


def pairing(environ: dict[str, str] | None = None, **options: object) -> tuple[Check, Facts]:
    """What the check says of options."""
    values = dict.fromkeys(("model", "speculative_config", "draft", "method", "draft_sampling", "k")) | options
    facts = Facts(environ or {})
    (check,) = check_pair(facts, Asked.of(**values))  # type: ignore[arg-type]
    return check, facts


def test_only_a_failure_is_an_error() -> None:
    """Warnings and skipped checks leave the exit code at 0, one failure makes it 1."""
    report = Report()
    report.add([ok("a", "x"), warn("b", "x", "y"), skip("c", "x")])
    assert (report.exit_code, report.to_dict()["ok"]) == (0, True)
    report.add([fail("d", "x", "y")])
    assert (report.exit_code, report.to_dict()["ok"]) == (1, False)
    assert report.to_dict(pair="p") == {
        "schema": 1,
        "ok": False,
        "pair": "p",
        "counts": {"ok": 1, "warn": 1, "fail": 1, "skip": 1},
        "checks": [check.to_dict() for check in report.checks],
    }


def test_a_finding_is_one_bounded_line() -> None:
    """Line breaks and endless texts of a server do not reach the report."""
    report = Report()
    report.add([fail("a", "one\ntwo " + "x" * 10_000, "")])
    assert "\n" not in report.checks[0].found
    assert len(report.checks[0].found) == 400


def test_a_group_that_hangs_keeps_what_it_found() -> None:
    """What was found before a check hangs stays, and the group's name fails."""
    never = threading.Event()

    def checks() -> Iterator[Check]:
        yield ok("first", "done")
        never.wait(5)
        yield ok("second", "done")

    found = list(bounded("group", checks, 0.1))
    never.set()
    assert [(check.name, check.status) for check in found] == [("first", Status.OK), ("group", Status.FAIL)]


def test_a_group_that_breaks_is_a_finding() -> None:
    """An unexpected exception ends its group and not the doctor."""

    def checks() -> Iterator[Check]:
        yield ok("first", "done")
        raise KeyError("what")

    found = list(bounded("group", checks, 1.0))
    assert [check.status for check in found] == [Status.OK, Status.FAIL]
    assert "KeyError" in found[1].found


def test_every_bad_setting_is_named() -> None:
    """All unusable settings are found at once, each with its variable and value."""
    found, facts = environment(
        ACCORD_QUEUE_ROUNDS="many", ACCORD_MODE="auto", ACCORD_LABEL_ORDER="x", ACCORD_WORKLOADS="99"
    )
    assert [check.status for check in found] == [Status.FAIL] * 4
    told = " ".join(check.found for check in found)
    for part in ("ACCORD_QUEUE_ROUNDS = 'many'", "ACCORD_MODE = 'auto'", "ACCORD_LABEL_ORDER", "ACCORD_WORKLOADS"):
        assert part in told
    assert facts.settings is None


@pytest.mark.parametrize("url", ["redis://h:99999", "redis://h/x", "redis+sentinel://h:1", "ftp://h"])
def test_a_redis_url_is_judged_as_the_client_does(url: str) -> None:
    """A URL that the engine's client could not use is found without a connection."""
    (check,), _ = environment(ACCORD_REDIS_URL=url)
    assert check.status is Status.FAIL
    assert "ACCORD_REDIS_URL" in check.found


def test_frozen_needs_a_file() -> None:
    """The one rule that concerns two settings is found too."""
    (check,), _ = environment(ACCORD_MODE="frozen")
    assert check.status is Status.FAIL
    assert "ACCORD_BOOTSTRAP" in check.found


def test_a_misspelt_setting_is_recognised() -> None:
    """A variable that nobody reads is named, with the one that was meant."""
    found, facts = environment(ACCORD_REDIS_ULR="redis://h", ACCORD_API_HOST="::", ACCORD_LEARNER_LEASE_MS="1")
    assert [(check.status, check.advice) for check in found] == [(Status.WARN, "did you mean ACCORD_REDIS_URL?")]
    assert facts.settings is not None


def test_secrets_in_clear_are_warned_of() -> None:
    """A token over http and a password over redis to another machine are warned of, and not shown."""
    found, facts = environment(
        ACCORD_API_URL="http://api.example", ACCORD_API_TOKEN="t0ken", ACCORD_REDIS_URL="redis://u:pa55@redis.example"
    )
    assert [check.status for check in found] == [Status.WARN, Status.WARN, Status.OK]
    assert not any(secret in check.found + check.advice for check in found for secret in ("t0ken", "pa55"))
    assert facts.asked


def test_secrets_are_known_in_every_spelling() -> None:
    """A password counts as it is written in the URL and as it is meant."""
    environ = {
        "ACCORD_REDIS_URL": "redis+sentinel://u:p%40ss@h:1/s?sentinel_password=se%3Dcret",
        "ACCORD_API_TOKEN": "token",
    }
    assert set(secrets_of(environ)) >= {"p%40ss", "p@ss", "se=cret", "token"}


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("redis://127.0.0.1:6379/0", True),
        ("redis://u:p@localhost", True),
        ("http://[::1]:8790", True),
        ("unix:///run/redis.sock", True),
        ("redis://redis:6379", False),
        ("redis+sentinel://127.0.0.1:1,other:2/s", False),
    ],
)
def test_loopback_is_recognised(url: str, local: bool) -> None:
    """Only what cannot leave the machine counts as local."""
    assert is_local(url) is local


def test_the_pair_is_that_of_the_plugin() -> None:
    """What vLLM is given and single options lead to the same pair id, that of the documented example."""
    config = '{"method": "eagle", "model": "EAGLE-Llama-3.1-8B", "num_speculative_tokens": 5}'
    told, facts = pairing(model="/models/Llama-3.1-8B", speculative_config=config)
    assert told.status is Status.OK
    assert facts.pair is not None
    assert facts.pair.id == "llama-3.1-8b.eagle-llama-3.1-8b.eagle.greedy.k5-4c479f12"
    _, same = pairing(model="Llama-3.1-8B", draft="EAGLE-Llama-3.1-8B", method="eagle", k=5, draft_sampling="greedy")
    assert same.pair == facts.pair


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ('{"model": "org/EAGLE-LLaMA3", "num_speculative_tokens": 2}', "eagle"),
        ('{"model": "org/Qwen3-8B_eagle3", "num_speculative_tokens": 2}', "eagle3"),
        ('{"method": "draft_model", "model": "org/dspark_qwen3", "num_speculative_tokens": 2}', "dspark"),
        ('{"method": "deepseek_mtp", "num_speculative_tokens": 2}', "mtp"),
        ('{"model": "org/small", "num_speculative_tokens": 2}', "draft_model"),
    ],
)
def test_the_method_is_recognised_as_vllm_does(config: str, method: str) -> None:
    """A method that is not given, or given as draft_model, follows from the draft's name."""
    _, facts = pairing(model="org/target", speculative_config=config)
    assert facts.pair is not None
    assert facts.pair.method == method


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"draft": "d", "method": "eagle", "k": 0}, "K = 0"),
        ({"draft": "d", "method": "eagle", "k": 65}, "k = 65"),
        ({"draft": "d", "method": "eagle"}, "num_speculative_tokens"),
        ({"method": "ngram", "k": 3}, "ngram"),
        ({"method": "eagle", "k": 3}, "draft model"),
        ({"draft": "d", "method": "eagle", "k": 3, "draft_sampling": "both"}, "draft_sampling"),
        ({"speculative_config": "{no"}, "not JSON"),
        ({"speculative_config": "[]"}, "not a JSON object"),
        ({"speculative_config": '{"model": "d", "num_speculative_tokens": "many"}'}, "many"),
    ],
)
def test_what_cannot_be_a_pair_is_explained(options: dict[str, object], part: str) -> None:
    """Every way to fail to name a pair fails the check and says which part is wrong."""
    check, facts = pairing(model="org/target", **options)
    assert check.status is Status.FAIL
    assert part in check.found
    assert check.advice
    assert facts.pair is None


def test_nothing_said_is_no_failure() -> None:
    """Without options the pair is skipped, with a word on how to name it."""
    check, _ = pairing()
    assert check.status is Status.SKIP
    assert "--speculative-config" in check.advice


def test_names_of_the_environment_win() -> None:
    """ACCORD_TARGET and ACCORD_DRAFT name the models as they do in the plugin."""
    _, facts = pairing({"ACCORD_TARGET": "T", "ACCORD_DRAFT": "D"}, model="/x/y", draft="/x/z", method="eagle", k=1)
    assert facts.pair is not None
    assert (facts.pair.target, facts.pair.draft) == ("T", "D")
