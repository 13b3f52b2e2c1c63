"""Every command of every page: run where it can be, and held against the real command line where it cannot."""

from __future__ import annotations

import shutil
import subprocess

import httpx
import pytest
from tests.docs.command_line import accord_faults, faults, invocations
from tests.docs.conftest import Service
from tests.docs.markdown import REASONS, UNTIL_STOPPED, Block, code, indented_commands, pages, shell_blocks
from tests.docs.reader import Reader

OVERRIDES = "docs/overrides.md"
# Its commands name the revisions that a pair has which nobody has overridden yet.
RUN = sorted(
    (page for page in pages() if any(block.left_out is None for block in shell_blocks(page))),
    key=lambda page: (page != OVERRIDES, page),
)
# Written beside this one.
BEING_WRITTEN = {"docs/reliability.md"}
BLOCKS = [block for page in pages() for block in shell_blocks(page)]


@pytest.mark.parametrize("page", RUN)
def test_every_command_works_in_order(page: str, service: Service, reader: Reader) -> None:
    """Pasted one after the other into a shell, every block of a page succeeds."""
    for tool in ("bash", "curl"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    for block in shell_blocks(page):
        if block.left_out is None:
            reader.run(block)
    if page == OVERRIDES:
        url = f"{service.api_url}/v1/pairs/{service.pair}/audit"
        entries = httpx.get(url, trust_env=False).json()["entries"]
        assert [entry["action"] for entry in reversed(entries)] == ["put", "put", "delete", "rollback", "delete"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_every_block_is_good_shell(block: Block) -> None:
    """A block parses, and what it asks of accord, make, docker and pip exists."""
    done = subprocess.run(["bash", "-n"], input=block.commands, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    commands = list(invocations(block.commands))
    assert commands, "a block of commands without a command"
    assert [fault for words in commands for fault in faults(words)] == []


@pytest.mark.parametrize("page", pages())
def test_what_is_left_out_says_why(page: str) -> None:
    """A block that is not run has a reason of the closed list above it, and no command hides outside of a block."""
    for block in shell_blocks(page):
        assert block.note in ("", UNTIL_STOPPED) or block.left_out in REASONS, f"{block.where}: {block.note}"
    assert page in BEING_WRITTEN or indented_commands(page) == []


@pytest.mark.parametrize("page", pages())
def test_commands_in_a_sentence_exist(page: str) -> None:
    """`accord ...` within prose names a command and options that there are."""
    wrong = []
    for line, text in code(page):
        for words in invocations(text) if text.startswith("accord ") else ():
            if words[0] == "accord":
                wrong += [f"{page}:{line}: {fault}" for fault in faults(words)]
    assert wrong == []


def test_every_reason_is_needed() -> None:
    """The list of reasons has none that no block gives."""
    assert {block.left_out for block in BLOCKS} - {None} == REASONS


def test_a_wrong_command_is_found() -> None:
    """A command, a sub-command, an option, a target, a file and an extra that do not exist are each named."""
    assert accord_faults(["shwo", "x"]) == ["there is no command accord shwo"]
    assert accord_faults(["override", "stop"]) == ["there is no command accord override stop"]
    assert accord_faults(["override", "pin", "--slope", "1"]) == ["accord override pin has no option --slope"]
    assert faults(["make", "tset"]) == ["the Makefile has no target tset"]
    assert faults(["docker", "compose", "-f", "x.yaml", "up"]) == ["there is no file x.yaml"]
    assert faults(["docker", "compose", "--profile", "tpu", "up"]) == ["compose.yaml has no profile tpu"]
    assert faults(["docker", "run", "accord", "lerner"]) == ["there is no command accord lerner"]
    assert faults(["pip", "install", "accord[everything]"]) == ["accord has no extra everything"]
    assert list(invocations('X=$(accord pairs | head -1) && accord show "$X"')) == [
        ["accord", "pairs"],
        ["head", "-1"],
        ["accord", "show", "$X"],
    ]
