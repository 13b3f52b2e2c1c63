"""`accord doctor` as a process, against a real store, a real API, and servers that lie."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.api.harness import Publisher as Owner
from tests.api.harness import RunningApi
from tests.hooks.harness import PAIR, RawServer, reply, table

from accord.api import Settings
from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store

OPTIONS = ("--model", PAIR.target, "--draft", PAIR.draft, "--method", "eagle", "--k", str(PAIR.k))
KNOTS = {"ACCORD_KNOTS": "0,2"}


class Said(NamedTuple):
    """How a doctor ended."""

    code: int
    report: dict[str, Any]
    text: str

    def status(self, name: str) -> str:
        """The worst status under a name."""
        found = [check["status"] for check in self.report["checks"] if check["name"] == name]
        assert found, f"no check {name}"
        return min(found, key=("fail", "warn", "skip", "ok").index)

    def told(self, name: str) -> str:
        """What was found and advised under a name."""
        return " ".join(
            f"{check['found']} {check['advice']}" for check in self.report["checks"] if check["name"] == name
        )


def doctor(*options: str, **variables: str) -> Said:
    """Runs the command in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ACCORD_", "VLLM_"))}
    command = [sys.executable, "-m", "accord.hooks.doctor", *options]
    done = subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    report = json.loads(done.stdout) if "--json" in options else {}
    return Said(done.returncode, report, done.stdout)


def service(api_url: str, server: EmbeddedServer | None = None, *options: str, **variables: str) -> Said:
    """A doctor that looks at the service only."""
    more = {"ACCORD_API_URL": api_url} | ({"ACCORD_REDIS_URL": server.url} if server is not None else {})
    return doctor("--service-only", "--json", "--timeout", "1", *OPTIONS, *options, **(KNOTS | more | variables))


@pytest.fixture
def api(store: Store, server: EmbeddedServer) -> Iterator[RunningApi]:
    """An api whose change feed is alive."""
    with RunningApi(Settings(redis_url=server.url)) as running:
        yield running.ready()


def test_a_service_that_works(store: Store, server: EmbeddedServer, api: RunningApi) -> None:
    """Before a real API and a real store all is well, and the report says what would run; the store stays empty."""
    said = service(api.url, server)
    assert (said.code, said.report["ok"], said.report["pair"]) == (0, True, PAIR.id)
    assert set(said.report) == {"schema", "ok", "accord", "engine", "mode", "pair", "version", "counts", "checks"}
    assert said.status("run") == "ok"
    assert "state fleet: the service answers; the cold start applies" in said.told("run")
    assert "would be the first" in said.told("pair.registered")
    assert "Redis" in said.told("clock")
    assert "the API" in said.told("clock")
    assert store.client.keys("*") == []


def test_a_published_table(store: Store, server: EmbeddedServer, api: RunningApi) -> None:
    """The version that an engine would apply is the one that is served."""
    assert Owner(store).publish().version == 1
    said = service(api.url, server)
    assert said.code == 0
    assert said.report["version"] == 1
    assert "version 1" in said.told("api.coefficients")
    assert said.told("pair.registered").startswith("with knots 0,2")
    assert said.status("learner") == "ok"


def test_other_knots_than_the_pair_has(store: Store, server: EmbeddedServer, api: RunningApi) -> None:
    """An engine whose knots differ from the registered ones would be refused, and learns which to set."""
    Owner(store)
    said = service(api.url, server, ACCORD_KNOTS="none")
    assert said.code == 1
    assert said.status("pair.registered") == "fail"
    assert "ACCORD_KNOTS=0,2" in said.told("pair.registered")


def test_a_backlog_without_learner(store: Store, server: EmbeddedServer, api: RunningApi) -> None:
    """Rounds that nobody reads are warned of."""
    Owner(store)
    store.append(PAIR.id, b"x", entry_id=f"{time.time_ns() // 1_000_000 - 60_000}-0")
    said = service(api.url, server)
    assert said.code == 0
    assert said.status("learner") == "warn"


def test_a_real_api_process(store: Store, server: EmbeddedServer, tmp_path: Path) -> None:
    """The same holds for an API in a process of its own."""
    ready = tmp_path / "url"
    command = [sys.executable, "-m", "accord.api", "--port", "0", "--redis-url", server.url, "--ready-file", str(ready)]
    child = Child("api", command, tmp_path / "log")
    child.start()
    try:
        deadline = time.monotonic() + 20
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for _ in range(50):
            said = service(ready.read_text().strip(), server)
            if said.code == 0:
                break
            time.sleep(0.1)
        assert said.code == 0, said.report
    finally:
        child.stop()


def test_nobody_there(free_port: int) -> None:
    """Dead addresses fail, in bounded time, and the report says that the engine would go on alone."""
    began = time.monotonic()
    said = service(f"http://127.0.0.1:{free_port}", None, "--redis-url", f"redis://127.0.0.1:{free_port}")
    assert time.monotonic() - began < 15
    assert said.code == 1
    assert (said.status("redis.reach"), said.status("api.live")) == ("fail", "fail")
    assert said.status("run") == "warn"
    assert "own refits after 30 s" in said.told("run")


@pytest.mark.parametrize("token", ["", "very-secret-token"])
def test_a_token_that_is_not_accepted(token: str) -> None:
    """A 401 is told from a dead service, and the token is not shown."""

    def answer(client: socket.socket, request: bytes) -> None:
        known = request.startswith((b"GET /livez", b"GET /readyz"))
        client.sendall(reply() if known else reply("401 Unauthorized", b"{}"))

    with RawServer(answer) as server:
        said = service(server.url, ACCORD_API_TOKEN=token)
    assert said.code == 1
    assert "ACCORD_API_TOKEN" in said.told("api.coefficients")
    assert "very-secret-token" not in said.text


def test_a_token_that_is_accepted() -> None:
    """Where the API answers with the token and not without it, the token is said to be accepted."""
    body = table(3).to_json()

    def answer(client: socket.socket, request: bytes) -> None:
        known = b"bearer engine-token" in request.lower() or b"/v1/" not in request
        client.sendall(reply(body=body) if known else reply("401 Unauthorized"))

    with RawServer(answer) as server:
        said = service(server.url, ACCORD_API_TOKEN="engine-token")
    assert said.told("api.coefficients").strip().endswith("token accepted")


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (reply(body=b'{"schema": 9}'), "schema"),
        (reply(body=table(1).to_json().replace(PAIR.id.encode(), b"another-pair")), "wrong_pair"),
        (reply("500 Internal Server Error"), "HTTP 500"),
        (reply("302 Found", b"", "Location: http://example.invalid/"), "HTTP 302"),
        (reply(body=b"x" * 5_000_000), "a body of more than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "Error"),
    ],
)
def test_an_api_that_lies(answer: bytes, part: str) -> None:
    """What an engine would refuse is a failure that says why."""

    def serve(client: socket.socket, request: bytes) -> None:
        client.sendall(answer if b"/v1/" in request else reply())

    with RawServer(serve) as server:
        said = service(server.url)
    assert said.code == 1
    assert part in said.told("api.coefficients")


def test_an_api_that_never_ends_its_answer() -> None:
    """An answer that drips in byte by byte is given up in bounded time."""

    def drip(client: socket.socket, request: bytes) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            client.sendall(b" ")
            time.sleep(0.1)

    began = time.monotonic()
    with RawServer(drip) as server:
        said = service(server.url)
    assert time.monotonic() - began < 20
    assert said.code == 1


def test_tls_where_there_is_none(api: RunningApi) -> None:
    """https:// before a plain server fails, with that as the explanation."""
    said = service(api.url.replace("http://", "https://"))
    assert said.status("api.live") == "fail"
    assert "TLS" in said.told("api.live")


def test_a_clock_that_is_wrong() -> None:
    """A service whose clock is minutes away is warned of."""
    date = "Date: Sat, 01 Jan 2022 00:00:00 GMT"
    with RawServer(lambda client, request: client.sendall(reply("200 OK", b"{}", date))) as server:
        said = service(server.url)
    assert said.status("clock") == "warn"


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"ACCORD_MODE": "local"}, "mode local, state local: configured"),
        ({"ACCORD_MODE": "observe"}, "state observe"),
        ({}, "vLLM as without accord"),
    ],
)
def test_what_runs_without_a_service(variables: dict[str, str], part: str) -> None:
    """Without a service the mode decides, and without a mode nothing runs."""
    said = doctor("--service-only", "--json", *OPTIONS, **variables)
    assert said.code == 0
    assert part in said.told("run")


def test_a_bootstrap_file(tmp_path: Path) -> None:
    """The table of a frozen engine is judged as the engine would."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(table(5).to_json())
    bad.write_bytes(b"{}")
    frozen = KNOTS | {"ACCORD_MODE": "frozen"}
    said = doctor("--service-only", "--json", *OPTIONS, **frozen, ACCORD_BOOTSTRAP=str(good))
    assert (said.code, said.status("bootstrap")) == (0, "ok")
    said = doctor("--service-only", "--json", *OPTIONS, **frozen, ACCORD_BOOTSTRAP=str(bad))
    assert (said.code, said.status("bootstrap")) == (1, "fail")


def test_no_vllm() -> None:
    """Outside of an engine's environment the doctor says so and fails, whatever the service does."""
    pytest.importorskip("accord.hooks.vllm.plugin")
    said = doctor("--json", *OPTIONS)
    if said.status("vllm") == "ok":
        pytest.skip("vLLM is installed here")
    assert said.code == 1
    assert said.status("plugin") == "ok"
    assert "engine" in said.told("vllm")


def test_a_plugin_that_is_left_out() -> None:
    """VLLM_PLUGINS without accord is found, as is the switch that turns it off."""
    said = doctor("--json", VLLM_PLUGINS="lora,other")
    assert said.status("plugin") == "fail"
    assert doctor("--json", ACCORD_DISABLE="1").status("plugin") == "warn"


def test_secrets_stay_secret(free_port: int) -> None:
    """Neither form of the report shows a password or a token, whatever fails."""
    url = f"redis://user:pass%40word@127.0.0.1:{free_port}/0"
    variables = {
        "ACCORD_REDIS_URL": url,
        "ACCORD_API_TOKEN": "sesame-token",
        "ACCORD_API_URL": f"http://127.0.0.1:{free_port}",
    }
    for options in (("--json",), ()):
        text = doctor("--service-only", "--timeout", "1", *options, *OPTIONS, **variables).text
        assert not any(secret in text for secret in ("pass%40word", "pass@word", "sesame-token"))


def test_people_get_one_line_a_check(api: RunningApi, server: EmbeddedServer) -> None:
    """The readable form has a line for every check and ends with the verdict."""
    said = doctor("--service-only", *OPTIONS, **KNOTS, ACCORD_REDIS_URL=server.url, ACCORD_API_URL=api.url)
    lines = said.text.strip().splitlines()
    assert said.code == 0
    assert lines[-1] == "it would work"
    assert all(line.startswith(("ok", "skip", " ")) for line in lines[:-2])
    assert any(line.startswith("ok") and "redis.append" in line for line in lines)


def test_a_wrong_command_line() -> None:
    """An unknown option is the caller's mistake: status 2."""
    clean = [sys.executable, "-m", "accord.hooks.doctor", "--nonsense"]
    assert subprocess.run(clean, capture_output=True, timeout=60, check=False).returncode == 2
