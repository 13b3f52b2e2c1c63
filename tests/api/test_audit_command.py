"""`accord audit` as people and scripts run it, against a real server."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.api.metrics_server import Answer, MetricsServer, completion, saved

from accord.api.audit_engine.http import MAX_PAGE_BYTES
from accord.learner.cli import main

FAST = ("--interval", "0.1", "--timeout", "5")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    told = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, told.out, told.err


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON."""
    code, out, _ = run(capsys, *arguments, *FAST, "--json")
    found: dict[str, Any] = json.loads(out)
    assert found["exit_code"] == code
    return code, found


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("0.10", 0, "helps"), ("0.10-v0", 0, "helps"), ("0.12-two", 1, "hurts"), ("0.32-adaptive", 0, "helps")],
)
def test_versions(capsys: pytest.CaptureFixture[str], name: str, code: int, verdict: str) -> None:
    """Every saved version gets its verdict and exit code from two readings."""
    with MetricsServer([saved(f"{name}-a"), saved(f"{name}-b")]) as server:
        found_code, found = report(capsys, server.url)
        assert server.asked == [("GET", "/metrics")] * 2
    assert (found_code, found["verdict"]) == (code, verdict)
    assert found["interval_s"] >= 0.1


def test_several_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """Each engine of a page is judged by itself; an idle one has no verdict and does not hide the other's."""
    with MetricsServer([saved("0.12-two-a"), saved("0.12-two-b")]) as server:
        _, found = report(capsys, server.url)
    assert {name: engine["verdict"] for name, engine in found["engines"].items()} == {
        "acme/target-8b engine=0": "hurts",
        "acme/target-8b engine=1": "unknown",
    }
    assert "at 1 of 2 engines" in found["message"]


def test_adaptive_verification_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """Where accord's metrics are on the page it says that trimmed drafts count as rejected."""
    with MetricsServer([saved("0.32-adaptive-a"), saved("0.32-adaptive-b")]) as server:
        _, found = report(capsys, server.url)
    assert any("trimmed count as rejected" in note for note in found["notes"])


def test_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal there is a table by position, the verdict in words, and what to check next."""
    with MetricsServer([saved("0.12-two-a"), saved("0.12-two-b")]) as server:
        code, out, _ = run(capsys, server.url, *FAST)
    assert code == 1
    for words in (
        "position",
        "42.0%",
        "1.64 tokens per step",
        "usual sign that speculation costs more than it brings",
        "check next: K: from position 2 on",
        "check next: temperature:",
        "check next: batch size: 48 requests",
        "speculation does not pay at 1 of 2 engines (exit code 1)",
    ):
        assert words in out


def test_no_speculation(capsys: pytest.CaptureFixture[str]) -> None:
    """A page of a vLLM without speculation cannot be judged, and says what that means."""
    with MetricsServer([saved("0.12-off")]) as server:
        code, found = report(capsys, server.url)
    assert (code, found["verdict"], found["engines"]) == (2, "unknown", {})
    assert found["without_speculation"] == ["acme/target-8b engine=0"]
    assert "speculation is off, or this vLLM is older than 0.10" in found["message"]


def test_gone_and_restarted_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that vanishes between the readings is named; one that restarts is judged since then."""
    with MetricsServer([saved("0.12-two-b"), saved("0.10-a")]) as server:
        code, found = report(capsys, server.url)
    assert found["gone"] == ["acme/target-8b engine=1"]
    (engine,) = found["engines"].values()
    assert (code, engine["drafts"]) == (0, 8000.0)
    assert any("restarted" in note for note in engine["notes"])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, {}, b"Not Found"), "answers 404: Not Found"),
        ((500, {}, b"\x1b[31mboom"), "answers 500: [31mboom"),
        ((307, {"location": "http://elsewhere/"}, b""), "redirects to http://elsewhere/"),
        ((200, {}, b"<html>hello</html>"), "has no metrics of vLLM"),
        ((200, {}, b""), "has no metrics of vLLM"),
        ((200, {}, b"x" * (MAX_PAGE_BYTES + 1)), f"sends more than {MAX_PAGE_BYTES} bytes"),
        ((200, {"content-length": "9"}, b"x"), "does not answer"),
        ((200, {"content-encoding": "gzip"}, b"\x1f\x8b\x00junk"), "has no metrics of vLLM"),
    ],
    ids=["404", "500", "redirect", "html", "empty", "huge", "short", "gzip"],
)
def test_bad_answers(capsys: pytest.CaptureFixture[str], answer: Answer, words: str) -> None:
    """Errors, redirects, other pages and huge ones end with one line and exit code 2."""
    with MetricsServer([answer]) as server:
        code, out, err = run(capsys, server.url, *FAST[:2], "--timeout", "2")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_nobody_there(capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    """A port that nobody listens on ends with one line and exit code 2."""
    code, _, err = run(capsys, f"http://127.0.0.1:{free_port}", *FAST)
    assert code == 2
    assert "does not answer: ConnectError" in err


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips(capsys: pytest.CaptureFixture[str], beginning: bytes) -> None:
    """A server that sends a byte now and then, in the headers or the body, is given up in time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.sendall(beginning)
                    while not ended.wait(0.05):
                        connection.sendall(b"a")
                except OSError:
                    return

        thread = threading.Thread(target=drip, name="drip")
        thread.start()
        code, _, err = run(capsys, f"http://127.0.0.1:{listener.getsockname()[1]}", "--timeout", "0.5")
        ended.set()
        thread.join()
    assert code == 2
    assert "takes longer than 0.5 s" in err or "does not answer" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("127.0.0.1:8000",),
        ("http://h", "--interval", "0"),
        ("http://h", "--interval", "nan"),
        ("http://h", "--draft-ratio", "-1"),
        ("http://h", "--draft-ratio", "nan"),
        ("http://h", "--load", "1"),
        ("http://h", "--load", "1001"),
        ("http://h", "--concurrency", "33"),
        ("http://h", "--max-tokens", "513"),
        ("http://h", "--timeout", "inf"),
        ("http://h", "--api-key-file", "/nonexistent/key"),
        (),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    """What cannot be used is refused with exit code 2 before anything is asked."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err


def test_load(capsys: pytest.CaptureFixture[str]) -> None:
    """A load sends each prompt twice, greedily, within its bounds, and what it made the server do is judged."""
    gate = threading.Barrier(3, timeout=20)

    def complete(body: dict[str, Any]) -> Answer:
        gate.wait()
        return completion(f"answer to {body['prompt']}")

    with MetricsServer([saved("0.10-a"), saved("0.10-b")], complete, models=["acme"]) as server:
        code, found = report(capsys, server.url, "--load", "12", "--concurrency", "3", "--max-tokens", "7")
        assert server.most_running == 3
        assert {path for method, path in server.asked if method == "POST"} == {"/v1/completions"}
        prompts = [body["prompt"] for body in server.bodies]
        assert sorted(prompts) == sorted([*set(prompts)] * 2)
        for body in server.bodies:
            assert (body["model"], body["max_tokens"], body["temperature"]) == ("acme", 7, 0.0)
        assert server.asked[0] == server.asked[-1] == ("GET", "/metrics")
    load = found["load"]
    assert (load["sent"], load["failed"], load["compared"], load["mismatches"], load["tokens"]) == (12, 0, 6, 0, 48)
    assert code == 0
    assert any("the load is greedy" in note for note in found["notes"])


def test_answers_that_do_not_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    """A greedy answer that differs the second time is reported with where it begins to, and the exit code stays."""
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def complete(body: dict[str, Any]) -> Answer:
        with lock:
            seen[body["prompt"]] = seen.get(body["prompt"], 0) + 1
            return completion(f"same{seen[body['prompt']]}\x1b" if "sky" in body["prompt"] else "same")

    with MetricsServer([saved("0.10-a"), saved("0.10-b")], complete) as server:
        code, found = report(capsys, server.url, "--load", "8", "--model", "m")
    assert (code, found["load"]["compared"], found["load"]["mismatches"]) == (0, 4, 1)
    (example,) = found["load"]["examples"]
    assert example["from_character"] == "4"
    assert {example["first"], example["second"]} == {"1 ", "2 "}
    assert any("greedy answers do not repeat: 1 of 4" in note for note in found["notes"])


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b"broken"),
        (200, {}, b"no json"),
        (200, {}, b'{"choices":[]}'),
        (200, {}, b'{"choices":[{"text":5}]}'),
        (200, {}, b"[" * 100_000),
        (200, {}, b"x" * (5 << 20)),
    ],
    ids=["500", "text", "none", "number", "deep", "huge"],
)
def test_a_load_that_fails(capsys: pytest.CaptureFixture[str], answer: Answer) -> None:
    """Failing requests are counted and named, stop after a few, and leave the metrics to be judged."""
    with MetricsServer([saved("0.10-a"), saved("0.10-b")], lambda _: answer) as server:
        code, found = report(capsys, server.url, "--load", "100", "--concurrency", "2")
        assert len(server.bodies) <= 10
    assert (code, found["load"]["compared"]) == (0, 0)
    assert found["load"]["failed"] == found["load"]["sent"] == len(server.bodies)
    assert any("requests failed" in note for note in found["notes"])


@pytest.mark.parametrize("models", [[], ["a", "b"]])
def test_which_model(capsys: pytest.CaptureFixture[str], models: list[str]) -> None:
    """Without a name the server must have exactly one model."""
    with MetricsServer([saved("0.10-a")], lambda _: completion("x"), models=models) as server:
        code, _, err = run(capsys, server.url, *FAST, "--load", "2")
    assert code == 2
    assert f"the server has {len(models)} models" in err


def test_the_key_is_sent_and_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key from a file or the environment is sent as a bearer token, and appears nowhere."""
    path = tmp_path / "key"
    path.write_text("s3cret-key\n")
    with MetricsServer([saved("0.10-a"), saved("0.10-b")], lambda _: (401, {}, b"who?")) as server:
        code, out, err = run(capsys, server.url, *FAST, "--load", "2", "--model", "m", "--api-key-file", str(path))
        assert set(server.headers) == {"Bearer s3cret-key"}
        assert (code, "s3cret" in out + err) == (0, False)
    monkeypatch.setenv("ACCORD_AUDIT_API_KEY", "other")
    with MetricsServer([saved("0.10-a"), saved("0.10-b")]) as server:
        run(capsys, server.url, *FAST)
        assert set(server.headers) == {"Bearer other"}
    monkeypatch.setenv("ACCORD_AUDIT_API_KEY", "two words é")
    code, _, err = run(capsys, "http://h", *FAST)
    assert (code, "two words" in err) == (2, False)
