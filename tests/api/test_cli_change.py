"""The operators' commands that change what is served, against a running api."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.cli import Cli
from tests.api.harness import PAIR, Publisher, RunningApi
from tests.waiting import until

from accord.api.cli.failures import Exit
from accord.learner.store import PairKeys, Store

WORKLOAD = "code:greedy"
PINNED = ("--slopes", "0.7", "--intercepts=-0.1,-0.2,-0.3")
WHY = ("--reason", "canary", "--actor", "ada")


def served(cli: Cli) -> list[float]:
    """The intercepts in force."""
    found: list[float] = cli.json("show", PAIR.id, WORKLOAD)["coefficients"]["intercepts"]
    return found


def test_a_pin_is_served_and_lifted(cli: Cli, known: Publisher) -> None:
    """A pin is served exactly, listed with who and why, and what was learnt returns when it is lifted."""
    code, out, err = cli("override", "pin", PAIR.id, WORKLOAD, *PINNED, *WHY)
    assert code == 0, err
    assert "is in force" in out
    assert served(cli) == [-0.1, -0.2, -0.3]
    listed = cli.json("override", "list", PAIR.id)["overrides"]
    assert [(item["kind"], item["actor"], item["reason"]) for item in listed] == [("pin", "ada", "canary")]
    assert listed[0]["coefficients"]["slopes"] == [0.7, 0.0, 0.0]
    assert cli("override", "lift", PAIR.id, WORKLOAD, *WHY)[0] == 0
    assert served(cli) == [0.4, 0.4, 0.4]


def test_a_shift_of_the_whole_pair_expires(cli: Cli, known: Publisher) -> None:
    """Without a workload the whole pair is shifted; a shift that expires ends by itself."""
    done = cli.json("override", "shift", PAIR.id, "--by=-0.5", "--expires-in", "1s", *WHY)
    assert done["override"]["scope"] is None
    assert done["override"]["expires_ms"] is not None
    until(lambda: served(cli) == [0.4, 0.4, 0.4])
    actions = [(entry["action"], entry["actor"]) for entry in cli.json("history", PAIR.id, "--audit")]
    assert actions[-1] == ("put", "ada")
    assert actions[0][0] == "expire"


def test_a_freeze_keeps_what_is_served(cli: Cli, known: Publisher) -> None:
    """A freeze changes nothing that is served."""
    assert cli("override", "freeze", PAIR.id, WORKLOAD, *WHY)[0] == 0
    assert served(cli) == [0.4, 0.4, 0.4]
    assert "freeze" in cli("override", "list", PAIR.id)[1]


def test_a_rollback(cli: Cli, known: Publisher) -> None:
    """A rollback serves an old version as a new one, and history and audit tell."""
    known.publish(code_greedy=0.9)
    assert served(cli) == [0.9, 0.9, 0.9]
    done = cli.json("rollback", PAIR.id, "--version", "1", *WHY)
    assert (done["of_version"], done["version"]) == (1, 3)
    assert served(cli) == [0.4, 0.4, 0.4]
    newest = cli.json("history", PAIR.id, "--limit", "1")[0]
    assert (newest["version"], newest["cause"], newest["of_version"]) == (3, "rollback", 1)
    for extra in ([], ["--audit"]):
        code, out, _ = cli("history", PAIR.id, *extra)
        assert code == 0
        assert "rollback" in out
    code, _, err = cli("rollback", PAIR.id, "--version", "77", *WHY)
    assert (code, err.count("\n")) == (Exit.UNKNOWN, 1)


def test_a_rollback_says_until_when(cli: Cli, known: Publisher) -> None:
    """Its last words name the end that was asked for, or what else will end it."""
    known.publish(code_greedy=0.9)
    ask = ("rollback", PAIR.id, "--version", "1", *WHY)
    assert "until the next publication" in cli(*ask, "--no-hold")[1]
    assert "held until lifted" in cli(*ask)[1]
    said = cli(*ask, "--expires-in", "2h")[1]
    assert re.search(r"held until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", said.strip())


def test_a_lift_says_what_is_served_now(cli: Cli, known: Publisher) -> None:
    """Under an override of the whole pair a workload does not get back what is learnt, and the last word says so."""
    for scope in ([], [WORKLOAD]):
        assert cli("override", "shift", PAIR.id, *scope, "--by", "0.1", *WHY)[0] == 0
    assert "serves the whole pair's override" in cli("override", "lift", PAIR.id, WORKLOAD, *WHY)[1]
    assert "serves what is learnt" in cli("override", "lift", PAIR.id, *WHY)[1]


def test_a_change_against_an_old_revision_is_refused(cli: Cli, known: Publisher) -> None:
    """Who names a revision that is over is told so by the exit code, and nothing changes."""
    assert cli("override", "shift", PAIR.id, WORKLOAD, "--by", "0.1", "--revision", "0", *WHY)[0] == 0
    before = served(cli)
    code, out, err = cli("override", "shift", PAIR.id, WORKLOAD, "--by", "2", "--revision", "0", *WHY)
    assert (code, out, err.count("\n")) == (Exit.CONFLICT, "", 1)
    assert served(cli) == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--slopes", "0.5", "--intercepts", "1,2"), "intercepts"),
        (("--slopes", "0.5,1", "--intercepts", "1,2,3"), "slopes"),
        (("--slopes", "x", "--intercepts", "1,2,3"), "slopes"),
        (("--slopes", "0.5", "--intercepts", "1,nan,3"), "intercepts"),
        (("--slopes=-1", "--intercepts", "1,2,3"), "slopes"),
        (("--slopes", "1e400", "--intercepts", "1,2,3"), "slopes"),
    ],
)
def test_a_pin_that_cannot_be_served(cli: Cli, known: Publisher, arguments: tuple[str, ...], field: str) -> None:
    """A pin of a wrong size or with impossible numbers is refused by the name of the field."""
    code, out, err = cli("override", "pin", PAIR.id, WORKLOAD, *arguments, *WHY)
    assert (code, out, err.count("\n")) == (Exit.REFUSED, "", 1)
    assert field in err
    assert served(cli) == [0.4, 0.4, 0.4]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("shift", PAIR.id, WORKLOAD, "--by", "nan", "--reason", "r"), "shift"),
        (("shift", PAIR.id, WORKLOAD, "--by=-1e400", "--reason", "r"), "shift"),
        (("shift", PAIR.id, WORKLOAD, "--by", "1", "--reason", "\udcff"), "reason"),
        (("freeze", PAIR.id, WORKLOAD, "--reason", "r", "--actor", "a\udcff"), "actor"),
        (("freeze", PAIR.id, "\udcff:hot", "--reason", "r"), "key"),
        (("lift", PAIR.id, "\udcff:hot", "--reason", "r"), "key"),
    ],
)
def test_values_that_json_or_utf8_cannot_carry(
    cli: Cli, known: Publisher, arguments: tuple[str, ...], field: str
) -> None:
    """What is no finite number, and an argument that is no UTF-8, is refused in one line that names the field."""
    code, out, err = cli("override", *arguments)
    assert (code, out, err.count("\n")) == (Exit.REFUSED, "", 1)
    assert err.startswith(f"accord: {field} = ")


def test_what_if(cli: Cli, known: Publisher) -> None:
    """`accord what-if` prints the metrics of the proposed coefficients beside those in force."""
    found = cli.json("what-if", PAIR.id, WORKLOAD, *PINNED)
    assert found["labels"] == 40
    code, out, _ = cli("what-if", PAIR.id, WORKLOAD, *PINNED)
    assert code == 0
    assert "proposed" in out
    assert "in force" in out


def test_advice(cli: Cli, known: Publisher) -> None:
    """`accord advice` says whether speculation pays, with tokens per step for every K."""
    found = cli.json("advice", PAIR.id, WORKLOAD, "--draft-ratio", "0.05")
    assert len(found["tokens_per_step"]) == PAIR.k + 1
    code, out, _ = cli("advice", PAIR.id, WORKLOAD, "--draft-ratio", "0.05")
    assert code == 0
    assert found["verdict"] in out


def test_tail_shows_every_publication(api: RunningApi, known: Publisher, store: Store) -> None:
    """`accord tail` prints a line for each version from the moment it listens, also when numbers come again after a
    restored backup, and ends after as many as asked for."""
    command = [str(Path(sys.executable).with_name("accord")), "tail", PAIR.id, "--json", "--count", "3"]
    environment = {**os.environ, "ACCORD_API_URL": api.url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            until(lambda: api.services.streams.count == 1)
            for level in (0.5, 0.6):
                known.publish(code_greedy=level)
            store.client.hset(PairKeys(PAIR.id).coefficients, "version", 1)
            known.version = 1
            known.publish(code_greedy=0.7)
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert [line["version"] for line in lines] == [2, 3, 2]
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def test_export_history_and_audit(cli: Cli, known: Publisher, tmp_path: Path) -> None:
    """History and the audit trail are exported whole, with what an operator wrote kept from being run as a formula."""
    assert cli("override", "freeze", PAIR.id, WORKLOAD, "--reason", "=1+1", "--actor", "ada")[0] == 0
    for what in ("history", "audit"):
        code, _, err = cli("export", PAIR.id, "--what", what, "--output", str(tmp_path / f"{what}.csv"))
        assert code == 0, err
    assert "'=1+1" in (tmp_path / "audit.csv").read_text()
    assert (tmp_path / "history.csv").read_text().splitlines()[0].startswith("pair,version")
