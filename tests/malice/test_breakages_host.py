"""What careless operators, hostile clients and broken hosts do: a clear refusal, or a loss that is told."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.api.harness import PAIR, Publisher, RunningApi
from tests.e2e.test_up import running, up
from tests.hooks.harness import KNOTS as ENGINE_KNOTS
from tests.hooks.harness import PAIR as ENGINE_PAIR
from tests.hooks.harness import RawServer, parts, reply, serving, table
from tests.waiting import until

from accord.api import Settings, patience
from accord.hooks.agent import Agent
from accord.hooks.settings import VARIABLES as ENGINE_VARIABLES
from accord.hooks.settings import AgentSettings, SettingError
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import AccordError
from accord.learner.service.settings import BOUNDS, LearnerSettings
from accord.learner.store import Store

ACCORD = str(Path(sys.executable).with_name("accord"))
HOST = "Host: 127.0.0.1\r\n"
PATH = f"/v1/pairs/{PAIR.id}/coefficients"


@pytest.fixture
def api(store: Store, server: EmbeddedServer) -> Iterator[RunningApi]:
    """An api with one published pair."""
    Publisher(store).publish()
    with RunningApi(Settings(redis_url=server.url)) as running_api:
        yield running_api.ready()


def environment(**changes: str) -> dict[str, str]:
    """Of a command: without settings of ours but these."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("ACCORD_", "HTTP_PROXY"))}
    return kept | changes


def accord(*arguments: str, stdout: Any = subprocess.PIPE, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs a command."""
    argv, env = [ACCORD, *arguments], environment(**changes)
    return subprocess.run(argv, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def raw(api: RunningApi, request: str | bytes, wait_s: float = 10.0) -> bytes:
    """What comes back for these bytes until the server closes."""
    host, port = api.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=wait_s)) as client:
        client.sendall(request.encode() if isinstance(request, str) else request)
        answer = b""
        while chunk := client.recv(1 << 16):
            answer += chunk
        return answer


# The API's sockets.


def test_a_body_with_two_lengths(api: RunningApi) -> None:
    """Nothing behind it is taken for a request: one 400, and the connection is closed."""
    hidden = f"GET {PATH} HTTP/1.1\r\n{HOST}\r\n"
    body = f"POST /v1/pairs HTTP/1.1\r\n{HOST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
    answer = raw(api, body)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"code":"length_ambiguous"' in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "half",
    ["", "GET / HT", f"PUT /v1/pairs/{PAIR.id}/override HTTP/1.1\r\n{HOST}Content-Length: 9\r\n\r\n{{"],
    ids=["nothing", "half a line", "half a body"],
)
def test_a_request_that_never_ends(api: RunningApi, monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """It is given up after a while, and others are served meanwhile; polls that are held are no such requests."""
    monkeypatch.setattr(patience, "WHOLE_REQUEST_S", 0.5)
    tag = api.get(PATH).headers["etag"]
    held: list[httpx.Response] = []
    poll = threading.Thread(target=lambda: held.append(api.get(PATH, etag=tag, wait=1.5)))
    poll.start()
    answer = raw(api, half)
    assert answer.startswith(b"HTTP/1.1 408") or (b"\r\n" in half.encode() and b" 200 " not in answer)
    poll.join()
    assert held[0].status_code == 304


TRICKS = (
    "/static/../../server.py",
    "/static/%2e%2e/%2e%2e/server.py",
    "/static/..%2f..%2fserver.py",
    "/static/%252e%252e/server.py",
    "/static/app.js%00",
    "/v1/pairs/%2e%2e/pairs",
    "/v1/pairs/%00/coefficients",
    "/v1/pairs/x%0d%0aSet-Cookie:%20a/coefficients",
    "/v1/pairs/%ff%fe/coefficients",
    "/v1/pairs/..;/readyz",
    "//v1/pairs",
    "http://elsewhere.example/v1/pairs",
)


def test_tricks_with_paths(api: RunningApi) -> None:
    """None reaches a file or another pair, or gets a header of its own into the answer."""
    for path in TRICKS:
        answer = raw(api, f"GET {path} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b" ")[1] in (b"404", b"422"), path
        assert set(json.loads(body)) == {"error"}, path
        assert b"\r\nset-cookie" not in head.lower(), path


def test_no_file_descriptors_left(server: EmbeddedServer, tmp_path: Path) -> None:
    """Connections beyond what an api may open wait; its log has a line about it, and it answers once some are gone."""
    ready, log = tmp_path / "url", tmp_path / "log"
    limited = f"ulimit -n 48; exec {sys.executable} -m accord.api --port 0 --ready-file {ready}"
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            ["bash", "-c", limited], env=environment(ACCORD_REDIS_URL=server.url), stderr=errors
        ) as process,
    ):
        try:
            until(ready.exists)
            host, port = ready.read_text().strip().removeprefix("http://").split(":")
            full = [socket.create_connection((host, int(port))) for _ in range(60)]
            until(lambda: "no file descriptors left" in log.read_text())
            for item in full:
                item.close()
            url = f"http://{host}:{port}/readyz"
            assert httpx.get(url, timeout=20.0, trust_env=False).status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert log.read_text().count("no file descriptors left") == 1
    assert "Traceback" not in log.read_text()


def test_operators_race(api: RunningApi) -> None:
    """Of twenty changes against one revision one is made; the others are refused and nothing of them is left."""
    answers: list[int] = []
    start = threading.Barrier(20)

    def change(number: int) -> None:
        body = {"kind": "shift", "shift": number / 100, "reason": "race", "actor": f"operator-{number}"}
        with httpx.Client(base_url=api.url, timeout=30.0) as client:
            start.wait()
            address = f"/v1/pairs/{PAIR.id}/override"
            answers.append(client.put(address, json=body, headers={"If-Match": '"0"'}).status_code)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, *[412] * 19]
    assert len(api.get(f"/v1/pairs/{PAIR.id}/audit").json()["entries"]) == 1


def test_more_overrides_than_a_pair_can_have(api: RunningApi) -> None:
    """Overrides that would bring a table beyond 64 rows are refused, and say why; those before them stay."""
    body = {"kind": "shift", "shift": 0.1, "reason": "flood", "actor": "script"}
    with httpx.Client(base_url=f"{api.url}/v1/pairs/{PAIR.id}", timeout=30.0, headers={"If-Match": "*"}) as client:
        answers = [client.put(f"/workloads/w{number}:hot/override", json=body) for number in range(80)]
    refused = [answer for answer in answers if answer.status_code != 200]
    # The table has a learnt row already.
    assert [answer.status_code for answer in answers] == [200] * 63 + [409] * 17
    assert "at most 64" in refused[0].json()["error"]["message"]
    assert len(api.get(f"/v1/pairs/{PAIR.id}/overrides").json()["overrides"]) == 80 - len(refused)


# The command line.


@pytest.mark.parametrize("command", [["pairs"], ["pairs", "--json"]])
def test_output_onto_a_full_disk(api: RunningApi, command: list[str]) -> None:
    """One line says that nothing could be written, and the command fails."""
    with open("/dev/full", "w") as full:
        done = accord(*command, stdout=full, ACCORD_API_URL=api.url)
    assert (done.returncode, done.stderr) == (2, "accord: cannot write: No space left on device\n")


def test_output_that_nobody_takes(api: RunningApi) -> None:
    """Closed by the shell, or by the next program in the pipe: no traceback."""
    for line in ("{} pairs >&-", "{} show {} --json | true", "{} history {} | head -1"):
        shell = line.format(ACCORD, PAIR.id)
        done = subprocess.run(
            ["bash", "-c", shell], env=environment(ACCORD_API_URL=api.url), capture_output=True, text=True, timeout=60
        )
        assert "Traceback" not in done.stderr, shell


def test_proxies_of_the_environment(api: RunningApi) -> None:
    """This machine is asked directly; elsewhere a proxy that is in the way is named, without its password."""
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        assert accord("pairs", ACCORD_API_URL=api.url, **{variable: "socks5://127.0.0.1:1"}).returncode == 0
    away = {"ACCORD_API_URL": "http://192.0.2.1"}
    done = accord("pairs", **away, HTTP_PROXY="http://me:secret@127.0.0.1:1")
    assert done.returncode == 3
    assert done.stderr.startswith("accord: through the proxy '127.0.0.1:1' of HTTP_PROXY (NO_PROXY leaves hosts out): ")
    done = accord("pairs", **away, ALL_PROXY="socks5://127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "of ALL_PROXY" in done.stderr


def test_somebody_else_answers(free_port: int) -> None:
    """A sign-in page, a redirection, and compressed nonsense: one line that doubts whose server this is."""
    for payload in (
        reply("200 OK", b"<html>sign in</html>", "Content-Type: text/html"),
        reply("302 Found", b"", "Location: http://127.0.0.1:1/"),
        reply("200 OK", b"\x1f\x8b junk", "Content-Encoding: gzip"),
    ):
        with RawServer(serving(payload)) as stranger:
            done = accord("pairs", ACCORD_API_URL=stranger.url)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert stranger.url in done.stderr
    done = accord("pairs", ACCORD_API_URL=f"http://127.0.0.1:{free_port}")
    assert "does not answer" in done.stderr


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends a command that waits for a server which says nothing with status 130, silently."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [ACCORD, "tail", "x"], env=environment(ACCORD_API_URL=url), stderr=subprocess.PIPE, text=True
        ) as process:
            client, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
            client.close()
    assert (process.returncode, err.strip()) == (130, "")


# The service on one machine.


def test_its_data_folder_is_deleted(tmp_path: Path) -> None:
    """`accord up` says at once that nothing is kept, starts the store without its data when it ends, and goes on."""
    folder = tmp_path / "data"
    with up(folder) as (process, url):
        assert process.stdout is not None
        process.stdout.readline()
        shutil.rmtree(folder)
        said = process.stdout.readline()
        assert said == f"{folder}/store is gone: nothing is written to it, all is lost when the store ends\n"
        store = next(item for item in psutil.Process(process.pid).children() if "valkey-server" in item.cmdline()[0])
        store.kill()
        said = process.stdout.readline()
        assert said == f"the embedded store was started again, without its data: {folder}/store was gone\n"
        [learner] = running(process, "accord.learner")
        learner.kill()
        assert "learner-1 ended" in process.stdout.readline()
        # The folder of its log came back with the store's.
        assert process.stdout.readline() == "learner-1 was started again\n"
        deadline = time.monotonic() + 20.0
        while httpx.get(f"{url}/readyz", trust_env=False).status_code != 200:
            assert time.monotonic() < deadline


def test_garbage_in_every_setting() -> None:
    """Each variable with a value that it cannot have is refused by its name; none crashes, none is half read."""
    garbage = ["x\x01y", "-1", "1e999", "nan", "0x10", "9" * 30, "\udcff", "\uff19", "a" * 5000]
    learner = [f"ACCORD_LEARNER_{name.upper()}" for name in (*BOUNDS, "carry")]
    api = [name for name in _api_variables() if not name.endswith(("_HOST", "_FILE"))]
    engine = set(ENGINE_VARIABLES.values()) - {"ACCORD_BOOTSTRAP", "ACCORD_KNOTS", "ACCORD_API_TOKEN", "ACCORD_ENGINE"}
    makers: list[tuple[Any, list[str]]] = [
        (LearnerSettings.from_environment, learner),
        (Settings.from_env, api),
        (AgentSettings.from_env, sorted(name for name in engine if not name.endswith("_FILE"))),
    ]
    for make, variables in makers:
        for variable in variables:
            for value in garbage:
                with pytest.raises((AccordError, SettingError), match=variable):
                    make({variable: value})


def _api_variables() -> list[str]:
    from accord.api.settings import VARIABLES

    return list(VARIABLES.values())


# The engine's host.


def engine(server: EmbeddedServer, **changes: Any) -> Agent:
    """An agent with quick heartbeats."""
    given = {"redis_url": server.url, "knots": ENGINE_KNOTS, "engine": "host/0", "heartbeat_s": 0.1} | changes
    return Agent(ENGINE_PAIR, AgentSettings(**given))


def heartbeat(store: Store) -> dict[str, Any]:
    """The last one."""
    found: dict[str, Any] = json.loads(store.engines(ENGINE_PAIR.id).get("host/0", b"{}"))
    return found


@pytest.mark.parametrize("off_ms", [-3 * 86_400_000, 3 * 86_400_000], ids=["behind", "ahead"])
def test_the_clock_of_an_engines_host_is_days_off(
    store: Store, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, off_ms: int
) -> None:
    """Its heartbeats carry the store's time and say how far off its own is; it does not count as silent."""
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + off_ms * 1_000_000)
    agent = engine(server)
    agent.start()
    try:
        until(lambda: "clock_ahead_s" in heartbeat(store))
        status = heartbeat(store)
    finally:
        assert agent.stop()
    assert abs(status["clock_ahead_s"] * 1000.0 - off_ms) < 60_000
    assert abs(status["time_ms"] - store.clock_ms(ENGINE_PAIR.id)) < 60_000
    with RunningApi(Settings(redis_url=server.url)) as api:
        [shown] = api.get(f"/v1/pairs/{ENGINE_PAIR.id}").json()["engines"]
    assert shown["silent_ms"] < 60_000


def test_an_engine_process_is_forked(store: Store, server: EmbeddedServer, tmp_path: Path) -> None:
    """What the copy measures is counted as lost and said once; nothing of it reaches the parent's boot."""
    agent = engine(server)
    agent.start()
    told = tmp_path / "told"
    try:
        agent.put(parts(0))
        assert agent.flush(10.0)
        child = os.fork()
        if child == 0:
            # Only what needs no lock that another thread of the parent may hold.
            handler = logging.FileHandler(told)
            logging.getLogger("accord.hooks.agent").handlers[:] = [handler]
            put = [agent.put(parts(number)) for number in (1, 2)]
            status = agent.status()
            (tmp_path / "status").write_text(json.dumps([put, status["lost_reasons"], status["labels"]]))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        put, reasons, labels = json.loads((tmp_path / "status").read_text())
        assert put == [False, False]
        assert reasons == {"forked": 2}
        assert labels["put"] == labels["sent"] + labels["lost"]
        assert told.read_text().count("was forked from engine host/0") == 1
        agent.put(parts(3))
        assert agent.flush(10.0)
        assert agent.status()["lost_reasons"] == {}
        assert store.client.xlen(f"accord:{{{ENGINE_PAIR.id}}}:rounds") == 2
    finally:
        assert agent.stop()


def test_an_engines_machine_sleeps(store: Store, server: EmbeddedServer) -> None:
    """Frozen until everybody has given it up, an engine sends what it holds when it wakes, and loses nothing."""
    argv = [sys.executable, "-m", "accord.hooks.replay", "--engine", "host/0", "--rate", "200", "--loop"]
    with subprocess.Popen(
        argv,
        env=environment(ACCORD_REDIS_URL=server.url, ACCORD_HEARTBEAT_S="0.2"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until(lambda: store.pairs() and _status(store).get("labels", {}).get("sent", 0) > 0)
            process.send_signal(signal.SIGSTOP)
            # What a server does with a client that has been silent for long.
            store.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            before = _status(store)
            process.send_signal(signal.SIGCONT)
            until(lambda: _status(store)["labels"]["sent"] > before["labels"]["sent"])
            assert _status(store)["boot"] == before["boot"]
        finally:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    last = _status(store)
    assert last["stopped"]
    assert last["labels"]["sent"] == last["labels"]["put"]
    assert last["labels"]["lost"] == 0


def _status(store: Store) -> dict[str, Any]:
    [pair_id] = store.pairs()
    found: dict[str, Any] = json.loads(store.engines(pair_id).get("host/0", b"{}"))
    return found


def test_a_service_of_the_future(store: Store, server: EmbeddedServer) -> None:
    """A table of an unknown schema is refused by reason and by value, and the table in force stays."""
    good = json.loads(table(3).to_json())
    with RawServer(serving(reply("200 OK", json.dumps(good | {"schema": 99}).encode(), 'ETag: "1"'))) as stranger:
        agent = engine(server, api_url=stranger.url, poll_wait_s=0.0)
        agent.start()
        try:
            until(lambda: heartbeat(store).get("nack") is not None)
            status = heartbeat(store)
        finally:
            assert agent.stop()
    assert status["nack"]["reason"] == "schema"
    assert "99" in status["nack"]["detail"]
    assert status["version"] == 0
