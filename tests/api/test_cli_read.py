"""The operators' commands that only read, against a running api."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.api.cli import Cli
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi

from accord.api.cli.client import Api, read_token
from accord.api.cli.failures import CommandError, Exit
from accord.api.cli.options import seconds
from accord.api.cli.output import json_text
from accord.api.engine_status import SILENT_MS
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import PairKeys, Store

WORKLOAD = "code:greedy"


def test_pairs_are_listed(cli: Cli, known: Publisher) -> None:
    """`accord pairs` lists every pair with its version, as a table and as JSON."""
    assert [item["id"] for item in cli.json("pairs")] == [PAIR.id]
    code, out, _ = cli("pairs")
    assert code == 0
    assert PAIR.id in out


def test_a_pair_is_shown_by_any_part_of_its_id(cli: Cli, known: Publisher, store: Store) -> None:
    """A part of an id will do while it names one pair only; otherwise the command says which could be meant."""
    assert cli.json("show", "target-8b")["id"] == PAIR.id
    store.register(Pair("meta/Target-8B", "other", Method.EAGLE, DraftSampling.GREEDY, 3), KNOTS)
    code, out, err = cli("show", "target-8b")
    assert (code, out) == (Exit.REFUSED, "")
    assert "could be any of 2" in err
    assert cli.json("show", PAIR.id)["id"] == PAIR.id


def test_an_unknown_pair(cli: Cli, known: Publisher) -> None:
    """A pair that nobody registered ends with its own exit code, and names what was asked for."""
    code, out, err = cli("show", "nobody")
    assert (code, out, err.count("\n")) == (Exit.UNKNOWN, "", 1)
    assert "pair = 'nobody'" in err


def test_a_workload_is_shown(cli: Cli, known: Publisher) -> None:
    """`accord show PAIR WORKLOAD` prints coefficients with their standard errors."""
    found = cli.json("show", PAIR.id, WORKLOAD)
    assert found["coefficients"]["intercepts"] == [0.4, 0.4, 0.4]
    code, out, _ = cli("show", PAIR.id, WORKLOAD)
    assert code == 0
    assert "intercept 2" in out
    assert "0.25" in out


def test_a_malformed_workload(cli: Cli, known: Publisher) -> None:
    """The api's refusal is shown in one line with field and value."""
    code, _, err = cli("show", PAIR.id, "Code")
    assert (code, err.count("\n")) == (Exit.REFUSED, 1)
    assert "key = Code" in err


def test_engines_show_how_far_they_are_behind(cli: Cli, known: Publisher, store: Store) -> None:
    """`accord engines` shows what each engine applies, and how many versions that is behind."""
    status = json.dumps({"version": 0, "time_ms": store.clock_ms(PAIR.id), "reason": "READY\x1b[31m"}).encode()
    store.heartbeat(PAIR.id, "engine-1", status)
    assert cli.json("engines", PAIR.id)[0]["version"] == 0
    code, out, _ = cli("engines", PAIR.id)
    assert code == 0
    assert "READY" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"state": "fleet", "reason": "the service answers", "publisher_error": ""}, ("fleet", "-")),
        ({"state": "local", "reason": "ConnectError: refused"}, ("local", "ConnectError: refused")),
        ({"state": "fleet", "stopped": True}, ("stopped", "-")),
        ({"state": "fleet", "nack": {"reason": "knots", "detail": "other knots"}}, ("fleet", "knots: other knots")),
        ({"state": "fleet", "publisher_error": "OOM"}, ("fleet", "OOM")),
    ],
)
def test_engines_show_what_is_in_their_way(
    cli: Cli, known: Publisher, store: Store, status: dict[str, Any], shown: tuple[str, str]
) -> None:
    """`accord engines` says of each engine in which state it is, and why it does not follow."""
    report = {"version": 0, "time_ms": store.clock_ms(PAIR.id), **status}
    store.heartbeat(PAIR.id, "engine-1", json.dumps(report).encode())
    _, out, _ = cli("engines", PAIR.id)
    (row,) = [line.split("│") for line in out.splitlines() if "engine-1" in line]
    assert (row[2].strip(), row[6].strip()) == shown


def test_a_silent_engine_is_called_silent(cli: Cli, known: Publisher, store: Store) -> None:
    """An engine whose last report is old is silent, whatever that report said."""
    report = {"version": 0, "time_ms": store.clock_ms(PAIR.id) - SILENT_MS - 1000, "state": "fleet"}
    store.heartbeat(PAIR.id, "engine-1", json.dumps(report).encode())
    _, out, _ = cli("engines", PAIR.id)
    assert "silent" in next(line for line in out.splitlines() if "engine-1" in line)


def test_export_csv_and_parquet_agree(cli: Cli, known: Publisher, tmp_path: Path) -> None:
    """Both forms carry the same tidy rows: a coefficient each, the prior's with an empty workload."""
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("c.csv", "c.parquet"):
        code, out, err = cli("export", PAIR.id, "--output", str(tmp_path / name))
        assert (code, out) == (0, ""), err
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(tmp_path / "c.parquet").to_pylist()
    assert len(rows) == len(table) == 2 * (1 + len(KNOTS) + PAIR.k + 1)
    for row, other in zip(rows, table, strict=True):
        assert (row["workload"], row["term"], int(row["index"])) == (other["workload"], other["term"], other["index"])
        assert float(row["value"]) == other["value"]
    assert [float(r["value"]) for r in rows if (r["workload"], r["term"]) == (WORKLOAD, "intercept")] == [0.4] * 3


def test_export_calibration(cli: Cli, known: Publisher, tmp_path: Path) -> None:
    """Calibration is exported by position and by predicted probability; the labels of either add up."""
    code, _, err = cli("export", PAIR.id, "--what", "calibration", "--output", str(tmp_path / "c.csv"))
    assert code == 0, err
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    for by in ("position", "probability"):
        assert sum(float(row["labels"]) for row in rows if row["by"] == by) == 40.0


def test_export_leaves_no_half_file(cli: Cli, known: Publisher, tmp_path: Path) -> None:
    """A folder that is not there is refused in one line; an old file stays when the export fails."""
    code, _, err = cli("export", PAIR.id, "--output", str(tmp_path / "no" / "c.csv"))
    assert (code, err.count("\n")) == (Exit.REFUSED, 1)
    old = tmp_path / "c.csv"
    old.write_text("old")
    code, _, err = cli("export", PAIR.id, "--output", str(old), "--what", "audit", "--as-of", "2026-01-01")
    assert (code, old.read_text()) == (Exit.REFUSED, "old"), err
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("name", [".", "/", "folder", "file/c.csv", "n" * 300, "gone/c.csv"])
def test_export_to_what_cannot_be_a_file(
    cli: Cli, known: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path at which no file can be made is refused in one line that names it, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    code, _, err = cli("export", PAIR.id, "--output", name)
    assert (code, err.count("\n")) == (Exit.REFUSED, 1)
    assert err.startswith(f"accord: output = '{name}': ")
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["file", "folder"]


def test_export_replaces_files_alone(cli: Cli, known: Publisher, tmp_path: Path) -> None:
    """A pipe is written to and stays one, a link leads to the same file as before."""
    file, link, pipe = (tmp_path / name for name in ("file.csv", "link.csv", "pipe"))
    link.symlink_to(file)
    assert cli("export", PAIR.id, "--output", str(link))[0] == Exit.DONE
    assert link.is_symlink()
    assert not file.is_symlink()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        found = reader.submit(pipe.read_bytes)
        assert cli("export", PAIR.id, "--output", str(pipe))[0] == Exit.DONE
        assert pipe.is_fifo()
        assert found.result(timeout=10) == file.read_bytes()


def test_an_api_that_is_not_there(capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    """Without an api the command ends with its own exit code and names the address."""
    code, out, err = Cli(capsys, f"http://127.0.0.1:{free_port}")("pairs")
    assert (code, out, err.count("\n")) == (Exit.UNREACHABLE, "", 1)
    assert str(free_port) in err


@pytest.mark.parametrize("url", ["127.0.0.1:8790", "ftp://x", "http://", "http://[::1", "http://a:b:c"])
def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """A malformed address is refused in one line."""
    code, out, err = Cli(capsys, url)("pairs")
    assert (out, err.count("\n")) == ("", 1)
    assert code in (Exit.REFUSED, Exit.UNREACHABLE)


def test_a_password_in_an_address_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """An address with a password is refused, and the password is not repeated."""
    code, out, err = Cli(capsys, "http://ada:s3cret@127.0.0.1:1")("pairs")
    assert (code, out, err.count("\n")) == (Exit.REFUSED, "", 1)
    assert "s3cret" not in err


@pytest.mark.parametrize("text", ["é", "\x9b31m", "\u202e", "\U000e0001", 'a"b\\', "line\nline"])
def test_json_is_safe_for_a_terminal(text: str) -> None:
    """What is printed as JSON reads back as it was, and holds nothing that a terminal would obey."""
    printed = json_text({"reason": text})
    assert json.loads(printed) == {"reason": text}
    assert printed.isprintable()


@pytest.mark.parametrize("text", ["", "5", "h", "1.5h", "-3m", "0s", "٣s", "9999999999s"])
def test_a_duration_that_is_none(text: str) -> None:
    """Durations are whole numbers of seconds, minutes, hours or days; anything else is refused by name."""
    with pytest.raises(CommandError, match="expires_in"):
        seconds(text)


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    """A token that no header can carry is refused without being repeated."""
    file = tmp_path / "token"
    for text in ("sécret-sécret", "two\nlines-secret", "x" * 5000, ""):
        file.write_text(text)
        with pytest.raises(CommandError) as caught:
            read_token(file)
        assert "cret" not in str(caught.value)
    file.write_text("good\n")
    assert read_token(file) == "good"
    with pytest.raises(CommandError, match="No such file"):
        read_token(tmp_path / "none")


def test_the_commands_need_no_web_framework() -> None:
    """The operators' commands import neither a web framework nor NumPy."""
    program = (
        "import sys\nfrom accord.api.cli import change, export, override, read, tail\n"
        "print(sorted({'numpy', 'fastapi', 'redis', 'river', 'pyarrow'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_the_shell_completes_options_and_pairs(api: RunningApi, known: Publisher) -> None:
    """Completion knows subcommands, the options of a command, and the ids of the pairs that the api has."""

    def completed(words: str, at: int) -> list[str]:
        shell = {"_ACCORD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        environment = {**os.environ, **shell, "ACCORD_API_URL": api.url}
        command = str(Path(sys.executable).with_name("accord"))
        return subprocess.run([command], capture_output=True, text=True, env=environment, check=True).stdout.split()

    assert completed("accord sho", 1) == ["show"]
    assert completed("accord override fr", 2) == ["freeze"]
    assert completed("accord show target-8b.d", 2) == [PAIR.id]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_names_nothing(cli: Cli, known: Publisher, name: str) -> None:
    """An empty argument, or one that a path would lose, is refused by its name before anything is asked or changed."""
    assert cli("override", "freeze", PAIR.id, "--reason", "r", "--actor", "a")[0] == 0
    for command in (
        ("show",),
        ("advice",),
        ("override", "freeze"),
        ("override", "lift"),
        ("rollback", "--version", "0"),
    ):
        reason = () if command[0] in ("show", "advice") else ("--reason", "r")
        code, out, err = cli(*command, *reason, PAIR.id, name)
        assert (code, out, err.count("\n")) == (Exit.REFUSED, "", 1), command
        assert f"workload = {name!r}: names nothing" in err
    if not name:
        code, _, err = cli("show", name)
        assert (code, "pair = '': names nothing" in err) == (Exit.REFUSED, True)
    # The whole pair's path is what is left of a workload's without its name.
    assert [item["scope"] for item in cli.json("override", "list", PAIR.id)["overrides"]] == [None]


class Endless(BaseHTTPRequestHandler):
    """Answers everything with a body that does not end."""

    def do_GET(self) -> None:
        """Sends until the client has gone."""
        self.send_response(200 if self.path != "/refused" else 422)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b"1" * 65536)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def test_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server sends, a command reads no more than its bound: of an answer, a refusal, a line of a stream."""
    monkeypatch.setattr("accord.api.cli.client.MAX_ANSWER_BYTES", 1 << 20)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with Api(f"http://127.0.0.1:{server.server_address[1]}") as api:
                for ask in (lambda: api.get("/v1/pairs"), lambda: api.get("/refused")):
                    with pytest.raises(CommandError, match="answers more than 1048576 bytes") as caught:
                        ask()
                    assert caught.value.exit_code == Exit.UNREACHABLE
                with pytest.raises(CommandError, match="answers more than 65536 bytes in one line"):
                    list(api.lines("/v1/events"))
                with pytest.raises(CommandError, match="answers more than 1048576 bytes"):
                    list(api.lines("/refused"))
        finally:
            server.shutdown()


def test_nothing_that_a_terminal_obeys_is_printed(cli: Cli, known: Publisher, store: Store) -> None:
    """What somebody wrote, and what the api says of it, reaches a terminal without what that would obey."""
    assert cli("override", "freeze", PAIR.id, WORKLOAD, "--reason", "incident 7", "--actor", "ada")[0] == 0
    key = PairKeys(PAIR.id).overrides
    # As a version before this one would have stored it.
    body = store.client.hget(key, "overrides").replace(b"incident", b"in\\u009b1mcid\\u202eent")
    store.client.hset(key, "overrides", body)
    for command in (("show", PAIR.id, WORKLOAD), ("override", "list", PAIR.id)):
        code, out, _ = cli(*command)
        assert (code, "in\ufffd1mcid\ufffdent" in out) == (0, True), command
    _, _, err = cli("history", PAIR.id, "--cause", "a\x9bb\u202ec")
    assert "a\ufffdb\ufffdc" in err
